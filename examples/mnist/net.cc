#include "examples/mnist/net.h"

#include "torch/nn/functional/activation.h"
#include "torch/nn/options/conv.h"

#include "examples/mnist/idx_dataset.h"

namespace cohort::mnist {
namespace {

// A 3x3 kernel without padding takes one pixel from each side.
constexpr int64_t kSide = 28 - 2;

}  // namespace

NetImpl::NetImpl(const NetShape& shape)
    : conv_(register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(
                                        1, shape.channels, 3)))),
      fc1_(register_module(
          "fc1",
          torch::nn::Linear(shape.channels * kSide * kSide, shape.hidden))),
      fc2_(register_module("fc2", torch::nn::Linear(shape.hidden, kClasses))) {}

torch::Tensor NetImpl::forward(const torch::Tensor& images) {
  const torch::Tensor features = torch::relu(conv_->forward(images));
  const torch::Tensor hidden =
      torch::relu(fc1_->forward(features.flatten(/*start_dim=*/1)));
  return fc2_->forward(hidden);
}

}  // namespace cohort::mnist
