#include "worker/rank_end.h"

namespace cohort::worker {

bool Failed(const ExitStatus& status) {
  return status.signal > 0 || status.exit_code != 0;
}

bool EndedByOthers(const ExitStatus& status) {
  return status.cause == ExitStatus::Cause::kStopped ||
         status.cause == ExitStatus::Cause::kKilled ||
         status.cause == ExitStatus::Cause::kTimeLimit ||
         status.cause == ExitStatus::Cause::kKeeperStopped ||
         status.cause == ExitStatus::Cause::kKeeperLost;
}

void ToWire(const ExitStatus& status, v1::ExitStatus& proto) {
  proto.set_code(status.signal > 0 ? 0 : status.exit_code);
  proto.set_signal(status.signal);
  proto.set_oom_killed(status.oom_killed);
  proto.set_detail(status.message);
}

bool FailedByItself(const v1::ObservedRank& rank) {
  return rank.state() == v1::RANK_STATE_EXITED && !rank.ended_by_order() &&
         (rank.exit().code() != 0 || rank.exit().signal() != 0);
}

const v1::ObservedRank* FirstToFail(const v1::ObservedAttempt& observed) {
  const v1::ObservedRank* first = nullptr;
  for (const v1::ObservedRank& rank : observed.ranks()) {
    if (FailedByItself(rank) &&
        (first == nullptr || rank.exit_order() < first->exit_order())) {
      first = &rank;
    }
  }
  return first;
}

}  // namespace cohort::worker
