#include "trainer/torch/foreach_adam.h"

#include <limits>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "torch/optim/adam.h"
#include "torch/types.h"
#include "torch/utils.h"

#include "trainer/adam.h"

namespace cohort::torch_adapter {
namespace {

template <typename T>
std::span<T> SpanOf(const torch::Tensor& tensor) {
  return {tensor.data_ptr<T>(), static_cast<size_t>(tensor.numel())};
}

template <typename T>
void FollowsThePassOverMemory(torch::ScalarType type, double tolerance) {
  const trainer::AdamOptions options = {.lr = 0.01};
  const std::vector<std::vector<int64_t>> shapes = {{3, 4}, {5}, {}};
  AdamTensors ours;
  std::vector<torch::Tensor> parameters, exp_avg, exp_avg_sq;
  for (const std::vector<int64_t>& shape : shapes) {
    ours.parameters.push_back(
        torch::full(shape, 0.5, type).set_requires_grad(true));
    ours.gradients.push_back(torch::zeros(shape, type));
    ours.exp_avg.push_back(torch::zeros(shape, type));
    ours.exp_avg_sq.push_back(torch::zeros(shape, type));
    parameters.push_back(torch::full(shape, 0.5, type));
    exp_avg.push_back(torch::zeros(shape, type));
    exp_avg_sq.push_back(torch::zeros(shape, type));
  }
  for (int64_t step = 1; step <= 50; ++step) {
    for (size_t i = 0; i < shapes.size(); ++i) {
      ours.gradients[i].copy_(
          torch::arange(ours.gradients[i].numel(), type)
              .add(static_cast<double>(step + 10 * static_cast<int64_t>(i)))
              .sin()
              .reshape(shapes[i]));
      trainer::AdamStep(options, step,
                        std::span<const T>(SpanOf<T>(ours.gradients[i])),
                        SpanOf<T>(parameters[i]), SpanOf<T>(exp_avg[i]),
                        SpanOf<T>(exp_avg_sq[i]));
    }
    ForeachAdamStep({options, step}, /*gradient_scale=*/1, ours);
  }
  for (size_t i = 0; i < shapes.size(); ++i) {
    EXPECT_TRUE(torch::allclose(ours.parameters[i].detach(), parameters[i],
                                tolerance, tolerance));
    EXPECT_TRUE(
        torch::allclose(ours.exp_avg[i], exp_avg[i], tolerance, tolerance));
    EXPECT_TRUE(torch::allclose(ours.exp_avg_sq[i], exp_avg_sq[i], tolerance,
                                tolerance));
    EXPECT_FALSE(
        torch::allclose(parameters[i], torch::full(shapes[i], 0.5, type)));
  }
}

TEST(ForeachAdamTest, FollowsThePassOverMemory) {
  FollowsThePassOverMemory<float>(torch::kFloat32, 1e-5);
  FollowsThePassOverMemory<double>(torch::kFloat64, 1e-13);
}

// Gradients as small as eps, none, and such that their squares or they
// themselves overflow, over more steps than it takes the bias to go.
TEST(ForeachAdamTest, FollowsLibTorchsAdamToTheEnds) {
  const double infinity = std::numeric_limits<double>::infinity();
  const torch::Tensor gradient =
      torch::tensor({1e-8, -3e-9, 0.0, 1e-3, 1e19, -1e30, infinity});
  torch::Tensor theirs = torch::ones({7}).set_requires_grad(true);
  theirs.mutable_grad() = gradient.clone();
  torch::optim::Adam reference({theirs}, torch::optim::AdamOptions(0.01));
  const AdamTensors ours = {.parameters = {torch::ones({7})},
                            .gradients = {gradient},
                            .exp_avg = {torch::zeros({7})},
                            .exp_avg_sq = {torch::zeros({7})}};
  for (int64_t step = 1; step <= 2500; ++step) {
    reference.step();
    ForeachAdamStep({{.lr = 0.01}, step}, /*gradient_scale=*/1, ours);
  }
  EXPECT_TRUE(torch::allclose(ours.parameters[0], theirs.detach(), 1e-4, 1e-5,
                              /*equal_nan=*/true))
      << ours.parameters[0] << theirs;
  EXPECT_EQ(ours.parameters[0].isfinite().sum().item<int64_t>(), 6);
}

template <typename Half>
void KeepsMasters(torch::ScalarType type) {
  const auto numbers = [] {
    return torch::arange(7, torch::kFloat32).mul(0.3).sub(1);
  };
  AdamTensors ours = {.parameters = {numbers()},
                      .gradients = {numbers().mul(64).sin().to(type)},
                      .exp_avg = {torch::zeros({7})},
                      .exp_avg_sq = {torch::zeros({7})},
                      .rounded = {numbers().to(type)}};
  torch::Tensor masters = numbers(), exp_avg = torch::zeros({7}),
                exp_avg_sq = torch::zeros({7}), rounded = numbers().to(type);
  for (int64_t step = 1; step <= 20; ++step) {
    const auto bits = [](const torch::Tensor& tensor) {
      return std::span(static_cast<Half*>(tensor.data_ptr()), 7);
    };
    trainer::AdamStep(trainer::AdamFactors<float>({}, step), 0.125f,
                      std::span<const Half>(bits(ours.gradients[0])),
                      SpanOf<float>(masters), SpanOf<float>(exp_avg),
                      SpanOf<float>(exp_avg_sq), bits(rounded));
    ForeachAdamStep({{}, step}, /*gradient_scale=*/0.125f, ours);
  }
  EXPECT_TRUE(torch::allclose(ours.parameters[0], masters, 1e-5, 1e-6));
  EXPECT_TRUE(torch::allclose(ours.exp_avg[0], exp_avg, 1e-5, 1e-7));
  EXPECT_TRUE(torch::allclose(ours.exp_avg_sq[0], exp_avg_sq, 1e-5, 1e-9));
  EXPECT_TRUE(torch::equal(ours.rounded[0], ours.parameters[0].to(type)));
  EXPECT_TRUE(torch::equal(ours.gradients[0], numbers().mul(64).sin().to(type)))
      << "the gradients are the reducer's";
}

TEST(ForeachAdamTest, KeepsMastersOfSixteenBits) {
  KeepsMasters<trainer::Float16>(torch::kHalf);
  KeepsMasters<trainer::BFloat16>(torch::kBFloat16);
}

TEST(ForeachAdamTest, HasNothingToDoWithoutParameters) {
  EXPECT_NO_THROW(ForeachAdamStep({trainer::AdamOptions(), 1},
                                  /*gradient_scale=*/0.5f, {}));
}

}  // namespace
}  // namespace cohort::torch_adapter
