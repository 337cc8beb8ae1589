#include "head/state/metrics_pace.h"

namespace cohort::head {

bool MetricsPace::Changed(const JobId& job) {
  const auto [age, first] = ages_.emplace(job, Age{clock_.Monotonic(), false});
  if (!first) age->second.waiting = true;
  return first;
}

void MetricsPace::Due(std::set<JobId>& jobs) {
  const absl::Duration now = clock_.Monotonic();
  for (auto& [job, age] : ages_) {
    if (!age.waiting || now - age.stored_at < period_) continue;
    age = {.stored_at = now, .waiting = false};
    jobs.insert(job);
  }
}

}  // namespace cohort::head
