#include "trainer/torch/foreach_adam.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>

#include "torch/utils.h"

namespace cohort::torch_adapter {

namespace {

// Unscaled behind the widening: what was scaled up to be seen in 16 bits would
// be rounded away again.
std::vector<torch::Tensor> Unscaled(const AdamTensors& tensors,
                                    float gradient_scale) {
  std::vector<torch::Tensor> gradients = tensors.gradients;
  for (size_t i = 0; i < tensors.rounded.size(); ++i) {
    gradients[i] = gradients[i].to(tensors.parameters[i].scalar_type());
  }
  if (gradient_scale == 1) return gradients;
  return at::_foreach_mul(gradients, gradient_scale);
}

}  // namespace

void ForeachAdamStep(const trainer::AdamFactors<double>& factors,
                     float gradient_scale, const AdamTensors& tensors) {
  if (tensors.parameters.empty()) return;
  const torch::NoGradGuard no_gradients;
  const std::vector<torch::Tensor> gradients =
      Unscaled(tensors, gradient_scale);
  at::_foreach_mul_(tensors.exp_avg, factors.beta1);
  at::_foreach_add_(tensors.exp_avg, gradients, factors.fresh1);
  at::_foreach_mul_(tensors.exp_avg_sq, factors.beta2);
  at::_foreach_addcmul_(tensors.exp_avg_sq, gradients, gradients,
                        factors.fresh2);
  const std::vector<torch::Tensor> roots =
      at::_foreach_sqrt(tensors.exp_avg_sq);
  at::_foreach_div_(roots, factors.root_bias2);
  at::_foreach_add_(roots, factors.eps);
  at::_foreach_addcdiv_(tensors.parameters, tensors.exp_avg, roots,
                        -factors.step_size);
  for (size_t i = 0; i < tensors.rounded.size(); ++i) {
    tensors.rounded[i].copy_(tensors.parameters[i]);
  }
}

}  // namespace cohort::torch_adapter
