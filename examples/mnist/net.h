#pragma once

#include <cstdint>

#include "torch/nn/module.h"
#include "torch/nn/modules/conv.h"
#include "torch/nn/modules/linear.h"

#include "examples/mnist/options.h"

namespace cohort::mnist {

// 28x28x1 -> conv 3x3 ReLU -> flatten -> dense ReLU -> dense 10.  Tensors are
// named and laid out as the same network in PyTorch: conv.weight
// [channels,1,3,3], fc1.weight [hidden,channels*676], fc2.weight [10,hidden].
class NetImpl : public torch::nn::Module {
 public:
  // Weights are drawn from torch's generator, as Glorot draws them.
  explicit NetImpl(const NetShape& shape);

  // [n,1,28,28] to the logits [n,10].
  torch::Tensor forward(const torch::Tensor& images);

 private:
  torch::nn::Conv2d conv_;
  torch::nn::Linear fc1_;
  torch::nn::Linear fc2_;
};

}  // namespace cohort::mnist
