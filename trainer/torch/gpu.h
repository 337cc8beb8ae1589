#pragma once

#include "absl/status/statusor.h"
#include "torch/types.h"

namespace cohort::torch_adapter {

// The GPU that this process was granted, the one that a session joined with
// can_use_gpu reduces on, as LibTorch names it; with a stream of its own
// current on this thread, so that a backward pass is not held up by the
// reduction of its first gradients (GradientSync).  Call it on the training
// thread before the module is moved there.  LibTorch's algorithms are those for
// GPUs from then on (PrepareForGpu).
//
// FAILED_PRECONDITION when this LibTorch is for CPUs or finds no GPU, with what
// to do; INTERNAL is LibTorch's error.
absl::StatusOr<torch::Device> OpenGpu();

}  // namespace cohort::torch_adapter
