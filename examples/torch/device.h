#pragma once

#include "absl/status/statusor.h"
#include "torch/types.h"

// What the examples on LibTorch have to do with their device.
namespace cohort::examples {

// The loss of a step on the host.  It waits for all that the step began, so
// what a GPU did wrong on the way is told here: INTERNAL.
absl::StatusOr<double> ReadLoss(const torch::Tensor& loss);

}  // namespace cohort::examples
