#include "head/state/checkpoint_rows.h"

#include <algorithm>
#include <limits>
#include <numeric>
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

using Checkpoints = google::protobuf::RepeatedPtrField<v1::Checkpoint>;

// Those that are neither of the `keep` best nor the last, which a restart goes
// on from; the last one first.  What has no score is worse than what has one,
// and of equals the older is worse.
std::vector<int> BeyondBest(const Checkpoints& committed, int keep) {
  const auto score = [&](int i) {
    return committed[i].has_score() ? committed[i].score()
                                    : -std::numeric_limits<double>::infinity();
  };
  std::vector<int> order(static_cast<size_t>(committed.size()));
  std::iota(order.rbegin(), order.rend(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return score(a) > score(b); });
  order.erase(order.begin(),
              order.begin() + std::min<int>(keep, committed.size()));
  std::erase(order, committed.size() - 1);
  std::sort(order.rbegin(), order.rend());
  return order;
}

}  // namespace

void TakeCheckpoints(const v1::ObservedPlace& observed,
                     const AttemptRecord& attempt,
                     const RunController::Limits& limits, JobRecord& job,
                     RunOutcome& outcome) {
  auto& committed = *job.row.mutable_checkpoints();
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
    const auto last = committed.rbegin();
    if (last != committed.rend() && last->epoch() == checkpoint.epoch() &&
        last->step() >= checkpoint.step()) {
      continue;
    }
    *committed.Add() = WithoutUnknown(checkpoint);
    outcome.job_changed = true;
    outcome.notes.push_back(
        {"checkpoint_committed",
         absl::StrCat("step ", checkpoint.step(), ", ", checkpoint.path())});
  }
  const bool keep_all = job.spec->run().num_to_keep() <= 0;
  const int keep =
      keep_all ? limits.checkpoints_max : job.spec->run().num_to_keep();
  for (const int i : BeyondBest(committed, keep)) {
    if (!keep_all && job.row.retired_size() < limits.retired_max) {
      job.row.add_retired(committed[i].path());
      outcome.retired_changed = true;
    }
    committed.erase(committed.begin() + i);
  }
}

void TakeRemoved(const v1::ObservedPlace& observed, JobRecord& job,
                 RunOutcome& outcome) {
  auto& retired = *job.row.mutable_retired();
  for (const std::string& path : observed.removed_checkpoints()) {
    const auto left = std::remove(retired.begin(), retired.end(), path);
    if (left == retired.end()) continue;
    retired.erase(left, retired.end());
    outcome.job_changed = true;
    outcome.retired_changed = true;
  }
}

}  // namespace cohort::head
