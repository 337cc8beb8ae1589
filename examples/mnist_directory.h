#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace cohort::examples {

// Where MNIST is: `given`, a --data flag, or where it is empty,
// $COHORT_DATA/mnist, or data/mnist or share/cohort/data/mnist beside or above
// this program.  NotFound says where it was looked for.
absl::StatusOr<std::string> FindMnist(const std::string& given = "");

}  // namespace cohort::examples
