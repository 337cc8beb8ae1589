#pragma once

#include "absl/status/status.h"

#include "examples/mnist/options.h"

namespace cohort::mnist {

// What the command line asks for.  Apart from main, which reads no LibTorch
// header: they take most of a compilation.
absl::Status TrainOrEvaluate(const TrainOptions& options);

}  // namespace cohort::mnist
