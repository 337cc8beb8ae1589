#include "trainer/torch/foreach_adam.h"

#include <span>
#include <vector>

#include "gtest/gtest.h"
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
    ForeachAdamStep({options, step}, ours);
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

TEST(ForeachAdamTest, HasNothingToDoWithoutParameters) {
  ForeachAdamStep({trainer::AdamOptions(), 1}, {});
}

}  // namespace
}  // namespace cohort::torch_adapter
