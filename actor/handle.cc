#include "actor/handle.h"

namespace cohort::actor {

absl::Status NoActor() {
  return absl::FailedPreconditionError("this handle names no actor");
}

}  // namespace cohort::actor
