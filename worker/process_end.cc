#include "worker/process_end.h"

namespace cohort::worker {

bool EndedByOthers(const ExitReport& exit) {
  return exit.cause == ExitCause::kStopped ||
         exit.cause == ExitCause::kKilled ||
         exit.cause == ExitCause::kTimeLimit ||
         exit.cause == ExitCause::kKeeperStopped ||
         exit.cause == ExitCause::kKeeperLost;
}

v1::ExitStatus ToWire(const ExitReport& exit) {
  v1::ExitStatus wire;
  wire.set_code(exit.signal > 0 ? 0 : exit.exit_code);
  wire.set_signal(exit.signal);
  wire.set_oom_killed(exit.oom_killed);
  wire.set_detail(exit.message);
  wire.set_ended_at_us(exit.ended_wall_ns / 1000);
  return wire;
}

bool FailedByItself(const v1::ObservedProcess& process) {
  return process.has_exit() && !process.ended_by_order() &&
         (process.exit().code() != 0 || process.exit().signal() != 0);
}

}  // namespace cohort::worker
