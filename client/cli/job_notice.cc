#include "client/cli/job_notice.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "common/printable_text.h"

namespace cohort::cli {
namespace {

int FailuresOf(const Job& job) { return job.failures() + job.infra_restarts(); }

bool IsGang(const Job& job) {
  return job.spec().run().restart() <= v1::RESTART_POLICY_ALL;
}

// " in 4s" where the job waits for that; else empty.
std::string DelayText(const Job& job, int next) {
  absl::string_view reason = job.reason();
  const std::string begin = absl::StrCat("attempt ", next, " starts in ");
  if (!absl::ConsumePrefix(&reason, begin)) return "";
  return absl::StrCat(" in ", reason.substr(0, reason.find(';')));
}

}  // namespace

void JobNotice::Know(const Job& job) {
  failures_ = std::max(failures_, FailuresOf(job));
  warnings_ = std::max(warnings_, job.warnings_size());
}

std::string JobNotice::Next(const Job& job) {
  const bool is_new = FailuresOf(job) > failures_;
  if (!is_new && job.warnings_size() > warnings_) {
    return OneLine(job.warnings(warnings_++));
  }
  if (!is_new && job.state() == v1::JOB_STATE_RUNNING && IsGang(job) &&
      !job.reason().empty() && !std::exchange(told_reason_, true)) {
    return OneLine(job.reason());
  }
  failures_ = std::max(failures_, FailuresOf(job));
  if (!is_new && job.state() == v1::JOB_STATE_PENDING && job.attempt() == 0) {
    if (++looks_waiting_ != 2 || job.reason().empty()) return "";
    return absl::StrCat("it waits: ", OneLine(job.reason()));
  }
  if (!is_new || HasEnded(job.state()) || job.causes().empty()) return "";
  const std::string cause = OneLine(job.causes(0));
  const v1::RunConfig& run = job.spec().run();
  const bool waits = job.state() == v1::JOB_STATE_PENDING;
  if (run.restart() == v1::RESTART_POLICY_ONE && !waits) {
    return absl::StrCat(cause, "; it starts again");
  }
  const int next = std::max(job.attempt(), 1) + (waits ? 1 : 0);
  const int left = run.max_failures() - job.failures();
  return absl::StrCat("attempt ", next - 1, " failed: ", cause, "; attempt ",
                      next, left >= 0 ? absl::StrCat(" of ", next + left) : "",
                      DelayText(job, next));
}

}  // namespace cohort::cli
