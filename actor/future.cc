#include "actor/future.h"

#include "absl/status/status.h"

#include "actor/call_error.h"
#include "common/status_util.h"

namespace cohort::actor {

absl::Status NoFuture() {
  return absl::FailedPreconditionError("this is the future of no call");
}

absl::Status ValueTaken() {
  return absl::FailedPreconditionError(
      "the value has been moved out of this future");
}

absl::Status BadResult() {
  return SetReason(
      absl::InternalError("the result could not be decoded: does the actor "
                          "run another program?"),
      kReasonBadResult);
}

absl::Status PromiseDropped() {
  return SetReason(
      absl::CancelledError("nobody is left who would complete this future"),
      kReasonCancelled);
}

}  // namespace cohort::actor
