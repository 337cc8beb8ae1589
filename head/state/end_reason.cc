#include "head/state/end_reason.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/duration_text.h"
#include "head/state/attempt_table.h"
#include "head/state/cause_chain.h"
#include "head/state/wait.h"

namespace cohort::head {
namespace {

// Ranks that end together take some time for it.
constexpr absl::Duration kEarlyExit = absl::Seconds(10);

bool IsLoss(AttemptCause cause) {
  return cause == v1::ATTEMPT_CAUSE_KEEPER_LOST ||
         cause == v1::ATTEMPT_CAUSE_NODE_LOST ||
         cause == v1::ATTEMPT_CAUSE_NODE_FAILED ||
         cause == v1::ATTEMPT_CAUSE_DEVICE_FAULT ||
         cause == v1::ATTEMPT_CAUSE_DAEMON_SHUTDOWN;
}

bool ExplainsFailure(const EndReason& reason, const AttemptRecord& attempt) {
  if (attempt.cause != v1::ATTEMPT_CAUSE_RANK_FAILED) return false;
  if (reason.cause == v1::ATTEMPT_CAUSE_NODE_LOST ||
      reason.cause == v1::ATTEMPT_CAUSE_DEVICE_FAULT ||
      reason.cause == v1::ATTEMPT_CAUSE_PREFLIGHT_FAILED) {
    return true;
  }
  const bool elsewhere = !reason.node.IsNil() &&
                         !IsOnNode(attempt, attempt.failed_rank, reason.node);
  return elsewhere &&
         (IsLoss(reason.cause) || reason.cause == v1::ATTEMPT_CAUSE_TIME_LIMIT);
}

}  // namespace

bool GiveReason(EndReason reason, AttemptRecord& attempt) {
  const bool first = attempt.cause == v1::ATTEMPT_CAUSE_NONE;
  const bool explains = ExplainsFailure(reason, attempt);
  if (!first && !explains) {
    if (!IsLoss(reason.cause)) return false;
    AddCauses(reason.facts, /*in_front=*/false, attempt);
    return true;
  }
  AddCauses(reason.facts, /*in_front=*/explains, attempt);
  attempt.cause = reason.cause;
  attempt.detail = std::move(reason.detail);
  return true;
}

std::string EarlyExitText(const AttemptRecord& attempt, absl::Time now) {
  if (attempt.state != v1::ATTEMPT_STATE_RUNNING) return "";
  std::vector<int> done;
  std::vector<int> running;
  absl::Time first = absl::InfiniteFuture();
  for (const Process& process : attempt.processes) {
    if (!process.exit.has_value()) {
      running.push_back(process.slot);
      continue;
    }
    done.push_back(process.slot);
    const int64_t ended_us = process.exit->ended_at_us();
    if (ended_us == 0) continue;  // not known
    first = std::min(first, absl::FromUnixMicros(ended_us));
  }
  if (done.empty() || running.empty() || now - first < kEarlyExit) return "";
  const bool one = running.size() == 1;
  return absl::StrCat(
      RanksText(done), " exited with 0",
      done.size() == 1 ? " " : ", the first ",
      DurationToText(absl::Floor(now - first, absl::Seconds(1))),
      " ago, while ", RanksText(running), one ? " still runs" : " still run",
      " (a rank that returns early leaves the others waiting in a "
      "collective)");
}

}  // namespace cohort::head
