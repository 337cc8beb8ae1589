#include "client/cli/job_notice.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "common/printable_text.h"

namespace cohort::cli {
namespace {

int FailuresOf(const Job& job) { return job.failures() + job.infra_restarts(); }

bool IsGang(const Job& job) {
  return job.spec().run().restart() <= v1::RESTART_POLICY_ALL;
}

// " in 4s" where the job waits for that; else empty.
std::string DelayText(const Job& job, absl::string_view begin) {
  const absl::string_view reason = job.reason();
  const size_t at = reason.find(begin);
  if (at == absl::string_view::npos) return "";
  const absl::string_view delay = reason.substr(at + begin.size());
  return absl::StrCat(" in ", delay.substr(0, delay.find(';')));
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
    return absl::StrCat(cause, "; it starts again",
                        DelayText(job, absl::StrCat("rank ", job.failed_rank(),
                                                    " starts again in ")));
  }
  const int next = std::max(job.attempt(), 1) + (waits ? 1 : 0);
  const int left = run.max_failures() - job.failures();
  return absl::StrCat(
      "attempt ", next - 1, " failed: ", cause, "; attempt ", next,
      left >= 0 ? absl::StrCat(" of ", next + left) : "",
      DelayText(job, absl::StrCat("attempt ", next, " starts in ")));
}

}  // namespace cohort::cli
