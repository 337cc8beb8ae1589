#pragma once

#include <vector>

#include "torch/types.h"

#include "trainer/adam_factors.h"

namespace cohort::torch_adapter {

// Parameters of one type on one device, with what Adam keeps of each.
struct AdamTensors {
  std::vector<torch::Tensor> parameters;
  std::vector<torch::Tensor> gradients;
  std::vector<torch::Tensor> exp_avg;
  std::vector<torch::Tensor> exp_avg_sq;
};

// One step of Adam, as trainer::AdamStep and up to rounding its result, by
// tensor operations that take all tensors together: a handful of launches on a
// GPU, however many parameters there are.  Only begun there.  Throws as
// LibTorch does.
void ForeachAdamStep(const trainer::AdamFactors<double>& factors,
                     const AdamTensors& tensors);

}  // namespace cohort::torch_adapter
