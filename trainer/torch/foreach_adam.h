#pragma once

#include <vector>

#include "torch/types.h"

#include "trainer/adam_factors.h"

namespace cohort::torch_adapter {

// Parameters of one type on one device, with what Adam keeps of each.
struct AdamTensors {
  std::vector<torch::Tensor> parameters;  // float32 or float64
  std::vector<torch::Tensor> gradients;   // of that type, or in 16 bits
  std::vector<torch::Tensor> exp_avg;
  std::vector<torch::Tensor> exp_avg_sq;
  // What `parameters` are the masters of, in 16 bits as their gradients; empty
  // where they are not masters.
  std::vector<torch::Tensor> rounded = {};
};

// One step of Adam, as trainer::AdamStep and up to rounding its result, by
// tensor operations that take all tensors together: a handful of launches on a
// GPU, however many parameters there are.  Only begun there.  Throws as
// LibTorch does.
//
// Gradients are multiplied by `gradient_scale` first, in the type of the
// parameters; where that is not 1 or they are of 16 bits, a copy of them all is
// held meanwhile.
void ForeachAdamStep(const trainer::AdamFactors<double>& factors,
                     float gradient_scale, const AdamTensors& tensors);

}  // namespace cohort::torch_adapter
