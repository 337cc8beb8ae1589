#include "trainer/torch/foreach_adam.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>

#include "torch/utils.h"

namespace cohort::torch_adapter {

void ForeachAdamStep(const trainer::AdamFactors<double>& factors,
                     const AdamTensors& tensors) {
  if (tensors.parameters.empty()) return;
  const torch::NoGradGuard no_gradients;
  at::_foreach_mul_(tensors.exp_avg, factors.beta1);
  at::_foreach_add_(tensors.exp_avg, tensors.gradients, factors.fresh1);
  at::_foreach_mul_(tensors.exp_avg_sq, factors.beta2);
  at::_foreach_addcmul_(tensors.exp_avg_sq, tensors.gradients,
                        tensors.gradients, factors.fresh2);
  const std::vector<torch::Tensor> roots =
      at::_foreach_sqrt(tensors.exp_avg_sq);
  at::_foreach_div_(roots, factors.root_bias2);
  at::_foreach_add_(roots, factors.eps);
  at::_foreach_addcdiv_(tensors.parameters, tensors.exp_avg, roots,
                        -factors.step_size);
}

}  // namespace cohort::torch_adapter
