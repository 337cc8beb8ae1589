#include "worker/process_end.h"

namespace cohort::worker {

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

bool FailedByItself(const v1::ObservedProcess& process) {
  return process.has_exit() && !process.ended_by_order() &&
         (process.exit().code() != 0 || process.exit().signal() != 0);
}

}  // namespace cohort::worker
