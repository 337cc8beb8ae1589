#include "head/state/start_times.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "head/state/job_spec.h"

namespace cohort::head {

bool StartTimes::IsOpen(const JobRecord& job) const {
  return job.row.attempts() > 0 || StartTimeOf(*job.spec) <= clock_.Wall();
}

bool StartTimes::Pass(const JobRecord& job) {
  if (IsOpen(job)) return true;
  deadlines_.Set(DueOf(job), StartTimeOf(*job.spec) - clock_.Wall());
  return false;
}

std::optional<Wait> StartTimes::WaitOf(const JobRecord& job) const {
  if (IsOpen(job) && !Keeps(job)) return std::nullopt;
  const absl::Time start = StartTimeOf(*job.spec);
  const absl::Duration left =
      std::max(start - clock_.Wall(), absl::ZeroDuration());
  // No countdown: progress output repeats a reason once it changes.
  const std::string text = absl::StrCat(
      "starts at ",
      absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", start, absl::UTCTimeZone()));
  return Wait{
      .kind = kind(),
      .text = text,
      .until = start,
      .lifted_by = {{.kind = "START_TIME_COMES",
                     .text = absl::StrCat("time: ", text, ", in ",
                                          absl::FormatDuration(absl::Ceil(
                                              left, absl::Seconds(1))))},
                    {.kind = "DROP_BEGIN",
                     .of_request = true,
                     .text = "without --begin"}}};
}

}  // namespace cohort::head
