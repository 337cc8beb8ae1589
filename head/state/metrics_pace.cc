#include "head/state/metrics_pace.h"

namespace cohort::head {

bool MetricsPace::Changed(const JobId& job) {
  const auto [at, first] = stored_at_.emplace(job, clock_.Monotonic());
  if (!first && !waiting_.contains(job)) {
    waiting_.Set(job, at->second + period_);
  }
  return first;
}

void MetricsPace::Due(std::set<JobId>& jobs) {
  const absl::Duration now = clock_.Monotonic();
  for (const JobId& job : waiting_.TakeDue(now)) {
    stored_at_[job] = now;
    jobs.insert(job);
  }
}

}  // namespace cohort::head
