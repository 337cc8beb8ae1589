#include "actor/function.h"

namespace cohort::actor {

absl::Status NoTaskRunner() {
  return absl::FailedPreconditionError(
      "nobody in this process runs tasks: they are run by a program that has "
      "called Init, and by its tasks");
}

}  // namespace cohort::actor
