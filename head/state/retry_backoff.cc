#include "head/state/retry_backoff.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "head/state/failure_class.h"
#include "head/state/job_spec.h"

namespace cohort::head {

absl::Duration RetryDelay(const JobRecord& job) {
  COHORT_CHECK(job.failures > 0) << job.id;
  absl::Duration delay = std::min(RetryDelayOf(*job.spec), kRetryDelayMax);
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

void RetryBackoff::Begin(const JobId& job, absl::Duration delay) {
  if (delay <= absl::ZeroDuration()) return;
  pauses_.try_emplace(job, Pause{.due = clock_.Monotonic() + delay});
}

void RetryBackoff::Forget(const JobId& job) {
  Leave(job);
  pauses_.erase(job);
}

bool RetryBackoff::Pass(const JobRecord& job) {
  const auto found = pauses_.find(job.id);
  if (found == pauses_.end()) return true;
  Pause& pause = found->second;
  if (pause.due <= clock_.Monotonic()) return true;
  pause.waits = true;
  order_.emplace(pause.due, job.id);
  return false;
}

void RetryBackoff::Leave(const JobId& job) {
  const auto found = pauses_.find(job);
  if (found == pauses_.end() || !found->second.waits) return;
  found->second.waits = false;
  order_.erase({found->second.due, job});
}

bool RetryBackoff::Keeps(const JobRecord& job) const {
  const auto found = pauses_.find(job.id);
  return found != pauses_.end() && found->second.waits;
}

JobGate::Elements RetryBackoff::ElementsOf(const JobId& array,
                                           int64_t /*rest*/) const {
  Elements elements;
  for (auto at = pauses_.lower_bound(array);
       at != pauses_.end() && at->first.array() == array; ++at) {
    if (at->second.waits && ++elements.count == 1) elements.first = at->first;
  }
  return elements;
}

std::vector<JobId> RetryBackoff::TakeDue(size_t most) {
  std::vector<JobId> due;
  const absl::Duration now = clock_.Monotonic();
  while (!order_.empty() && order_.begin()->first <= now && due.size() < most) {
    due.push_back(order_.begin()->second);
    Leave(due.back());
  }
  return due;
}

std::optional<Wait> RetryBackoff::WaitOf(const JobRecord& job) const {
  const auto found = pauses_.find(job.id);
  if (found == pauses_.end()) return std::nullopt;
  const Pause& pause = found->second;
  const absl::Duration left =
      std::max(pause.due - clock_.Monotonic(), absl::ZeroDuration());
  if (!pause.waits && left == absl::ZeroDuration()) return std::nullopt;
  const std::string text = absl::StrCat(
      "attempt ", job.attempts + 1, pause.waits ? " starts in " : " is due in ",
      absl::FormatDuration(absl::Ceil(left, absl::Seconds(1))));
  return Wait{.kind = kind(),
              .text = text,
              .until = clock_.Wall() + left,
              .lifted_by = {{.kind = "BACK_OFF_ENDS",
                             .text = absl::StrCat("time: ", text)}}};
}

}  // namespace cohort::head
