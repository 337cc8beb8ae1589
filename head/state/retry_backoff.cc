#include "head/state/retry_backoff.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "head/state/failure_class.h"

namespace cohort::head {

absl::Duration RetryDelay(const JobRecord& job) {
  COHORT_CHECK(job.failures > 0) << job.id;
  absl::Duration delay = std::min(job.spec->retry_delay, kRetryDelayMax);
  for (int i = 1; i < job.failures && delay < kRetryDelayMax; ++i) {
    if (delay == absl::ZeroDuration()) break;
    delay = std::min(2 * delay, kRetryDelayMax);
  }
  return delay;
}

absl::Duration RetryDelayAfter(const JobRecord& job,
                               const AttemptRecord& last) {
  const bool charged =
      job.failures > 0 && WasCharged(job, ClassOf(last.cause, last.exit));
  return charged ? RetryDelay(job) : absl::ZeroDuration();
}

void RetryBackoff::Add(const JobId& job, absl::Duration delay) {
  const absl::Duration due = clock_.Monotonic() + delay;
  COHORT_CHECK(due_.emplace(job, due).second) << job;
  order_.emplace(due, job);
}

void RetryBackoff::Remove(const JobId& job) {
  const auto found = due_.find(job);
  if (found == due_.end()) return;
  order_.erase({found->second, job});
  due_.erase(found);
}

RetryBackoff::Elements RetryBackoff::ElementsOf(const JobId& array) const {
  Elements elements;
  for (auto at = due_.lower_bound(array);
       at != due_.end() && at->first.array() == array; ++at) {
    if (++elements.count == 1) elements.first = at->first;
  }
  return elements;
}

std::vector<JobId> RetryBackoff::TakeDue(size_t max) {
  std::vector<JobId> due;
  const absl::Duration now = clock_.Monotonic();
  while (!order_.empty() && order_.begin()->first <= now && due.size() < max) {
    due.push_back(order_.begin()->second);
    Remove(due.back());
  }
  return due;
}

std::string RetryBackoff::ReasonOf(const JobRecord& job) const {
  const auto found = due_.find(job.id);
  if (found == due_.end()) return "";
  const absl::Duration left =
      std::max(found->second - clock_.Monotonic(), absl::ZeroDuration());
  return absl::StrCat("attempt ", job.attempts + 1, " starts in ",
                      absl::FormatDuration(absl::Ceil(left, absl::Seconds(1))));
}

}  // namespace cohort::head
