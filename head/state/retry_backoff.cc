#include "head/state/retry_backoff.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "head/state/failure_class.h"
#include "head/state/job_spec.h"

namespace cohort::head {

absl::Duration RetryDelay(const JobRecord& job) {
  COHORT_CHECK(job.row.failures() > 0) << job.id;
  return RetryDelay(*job.spec, job.row.failures());
}

absl::Duration RetryDelay(const JobSpec& spec, int failures) {
  if (failures <= 0) return absl::ZeroDuration();
  absl::Duration delay = std::min(RetryDelayOf(spec), kRetryDelayMax);
  for (int i = 1; i < failures && delay < kRetryDelayMax; ++i) {
    if (delay == absl::ZeroDuration()) break;
    delay = std::min(2 * delay, kRetryDelayMax);
  }
  return delay;
}

absl::Duration RetryDelayAfter(const JobRecord& job,
                               const AttemptRecord& last) {
  const bool charged =
      job.row.failures() > 0 && WasCharged(job, ClassOf(last.cause, last.exit));
  return charged ? RetryDelay(job) : absl::ZeroDuration();
}

void RetryBackoff::Begin(const JobId& job, absl::Duration delay) {
  if (delay <= absl::ZeroDuration()) return;
  due_.try_emplace(job, clock_.Monotonic() + delay);
}

void RetryBackoff::Forget(const JobId& job) {
  deadlines_.Erase(DueOf(job));
  due_.erase(job);
}

bool RetryBackoff::Pass(const JobRecord& job) {
  const auto found = due_.find(job.id);
  if (found == due_.end() || found->second <= clock_.Monotonic()) return true;
  deadlines_.Set(DueOf(job.id), found->second - clock_.Monotonic());
  return false;
}

std::optional<Wait> RetryBackoff::WaitOf(const JobRecord& job) const {
  const auto found = due_.find(job.id);
  if (found == due_.end()) return std::nullopt;
  const bool waits = Keeps(job);
  const absl::Duration left =
      std::max(found->second - clock_.Monotonic(), absl::ZeroDuration());
  if (!waits && left == absl::ZeroDuration()) return std::nullopt;
  // To the second, or what is less to a tenth.
  const absl::Duration unit =
      left > absl::Seconds(1) ? absl::Seconds(1) : absl::Milliseconds(100);
  const std::string text = absl::StrCat(
      "attempt ", job.row.attempts() + 1, waits ? " starts in " : " is due in ",
      absl::FormatDuration(std::max(absl::Ceil(left, unit), unit)));
  return Wait{.kind = kind(),
              .text = text,
              .until = clock_.Wall() + left,
              .lifted_by = {{.kind = "BACK_OFF_ENDS",
                             .text = absl::StrCat("time: ", text)}}};
}

}  // namespace cohort::head
