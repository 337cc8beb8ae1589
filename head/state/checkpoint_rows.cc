#include "head/state/checkpoint_rows.h"

#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/log.h"

namespace cohort::head {
namespace {

// CK-1's fence in the path itself: no two attempts share a directory.
bool IsBelowAttempt(const std::string& path, const AttemptRecord& attempt) {
  const std::string below =
      absl::StrCat("/attempt-", attempt.number, ".", attempt.epoch, "/");
  return absl::StartsWith(path, "/") && absl::StrContains(path, below) &&
         !absl::StrContains(path, "/../") && path.size() <= 4096;
}

}  // namespace

void TakeCheckpoints(const v1::ObservedPlace& observed,
                     const AttemptRecord& attempt,
                     const RunController::Limits& limits, JobRecord& job,
                     RunOutcome& outcome) {
  for (const v1::Checkpoint& checkpoint : observed.checkpoints()) {
    outcome.acknowledged.push_back(checkpoint.path());
    if (checkpoint.epoch() != attempt.epoch ||
        !IsBelowAttempt(checkpoint.path(), attempt)) {
      COHORT_LOG(kWarning, "checkpoint_refused", {"attempt", attempt.id},
                 {"path", absl::CHexEscape(checkpoint.path())},
                 {"epoch", checkpoint.epoch()});
      continue;
    }
    // Steps grow within an attempt: what is not newer is a repetition, perhaps
    // of one that was removed since.
    if (!job.checkpoints.empty() &&
        job.checkpoints.back().epoch() == checkpoint.epoch() &&
        job.checkpoints.back().step() >= checkpoint.step()) {
      continue;
    }
    job.checkpoints.push_back(WithoutUnknown(checkpoint));
    outcome.job_changed = true;
    outcome.notes.push_back(
        {"checkpoint_committed",
         absl::StrCat("step ", checkpoint.step(), ", ", checkpoint.path())});
  }
  const bool keep_all = job.spec->run().num_to_keep() <= 0;
  const size_t keep = keep_all
                          ? limits.checkpoints_max
                          : static_cast<size_t>(job.spec->run().num_to_keep());
  while (job.checkpoints.size() > keep) {
    if (!keep_all && job.retired.size() < limits.retired_max) {
      job.retired.push_back(job.checkpoints.front().path());
      outcome.retired_changed = true;
    }
    job.checkpoints.erase(job.checkpoints.begin());
  }
}

void TakeRemoved(const v1::ObservedPlace& observed, JobRecord& job,
                 RunOutcome& outcome) {
  for (const std::string& path : observed.removed_checkpoints()) {
    if (std::erase(job.retired, path) == 0) continue;
    outcome.job_changed = true;
    outcome.retired_changed = true;
  }
}

}  // namespace cohort::head
