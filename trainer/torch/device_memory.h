#pragma once

#include <cstddef>

#include "torch/types.h"

namespace cohort::torch_adapter {

// A tensor of memory that somebody else holds: on the host, or that device's.
torch::Tensor TensorAt(std::byte* memory, torch::IntArrayRef sizes,
                       torch::ScalarType type, torch::Device device);

// The same numbers on `device`: begun, through pinned memory, which LibTorch
// holds until the copy is over.  `host` itself where the device is the CPU.
torch::Tensor Upload(const torch::Tensor& host, torch::Device device);

}  // namespace cohort::torch_adapter
