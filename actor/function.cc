#include "actor/function.h"

#include "actor/call_error.h"
#include "common/status_util.h"

namespace cohort::actor {

absl::Status NoTaskRunner() {
  return SetReason(
      absl::FailedPreconditionError(
          "nobody runs tasks for this process: a program that has called Init "
          "does, also for its tasks and its actors, but not for detached ones, "
          "which outlive it (connect a Runtime in the actor)"),
      kReasonNoDriver);
}

}  // namespace cohort::actor
