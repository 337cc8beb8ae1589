#include "head/state/end_reason.h"

#include <utility>

#include "head/state/attempt_table.h"
#include "head/state/cause_chain.h"

namespace cohort::head {
namespace {

bool IsLoss(EndCause cause) {
  return cause == EndCause::kKeeperLost || cause == EndCause::kNodeLost ||
         cause == EndCause::kNodeFailed || cause == EndCause::kDeviceFault ||
         cause == EndCause::kDaemonShutdown;
}

bool ExplainsFailure(const EndReason& reason, const AttemptRecord& attempt) {
  if (attempt.cause != EndCause::kRankFailed) return false;
  if (reason.cause == EndCause::kNodeLost ||
      reason.cause == EndCause::kDeviceFault ||
      reason.cause == EndCause::kPreflightFailed) {
    return true;
  }
  const bool elsewhere =
      reason.part != nullptr && !HasRank(*reason.part, attempt.failed_rank);
  return elsewhere &&
         (IsLoss(reason.cause) || reason.cause == EndCause::kTimeLimit);
}

}  // namespace

bool GiveReason(EndReason reason, AttemptRecord& attempt) {
  const bool first = attempt.cause == EndCause::kNone;
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
