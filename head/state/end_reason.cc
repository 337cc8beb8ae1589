#include "head/state/end_reason.h"

#include <utility>

#include "head/state/attempt_table.h"
#include "head/state/cause_chain.h"

namespace cohort::head {
namespace {

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

}  // namespace cohort::head
