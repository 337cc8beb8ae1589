#include "examples/mlp/cpu_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "examples/mlp/gpu_device.h"
#include "examples/mlp/kernel_args.h"
#include "examples/mlp/softmax_row.h"
#include "trainer/comm/float16.h"

namespace cohort::mlp {
namespace {

using ::testing::ElementsAre;
using trainer::BFloat16;
using trainer::DType;
using trainer::Float16;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <typename Args>
void RunKernel(Kernel kernel, DType dtype, const Args& args) {
  for (const CpuKernel& candidate : CpuKernels()) {
    if (candidate.kernel != kernel || candidate.dtype != dtype) continue;
    EXPECT_EQ(candidate.args_bytes, sizeof(Args));
    candidate.run(&args);
    return;
  }
  ADD_FAILURE() << "no " << KernelName(kernel, dtype);
}

std::vector<float> Draw(size_t count) {
  static SeededRandom random(3);
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(2 * random.Double() - 1);
  }
  return values;
}

// Bit for bit the plain loop, for every stride and tail.
TEST(CpuKernelsTest, ProductsAreSumsInOrder) {
  for (const uint32_t m : {1u, 4u, 7u}) {
    for (const uint32_t n : {1u, 16u, 21u}) {
      for (const uint32_t depth : {1u, 9u, 40u}) {
        for (const bool transposed : {false, true}) {
          const std::vector<float> a = Draw(m * depth), b = Draw(depth * n);
          std::vector<float> c(m * n, kNan);
          const Matrix left =
              transposed ? Matrix{a.data(), 1, m} : Matrix{a.data(), depth, 1};
          const Matrix right =
              transposed ? Matrix{b.data(), 1, depth} : Matrix{b.data(), n, 1};
          RunKernel(Kernel::kProduct, DType::kF32,
                    ProductArgs{.a = left,
                                .b = right,
                                .c = c.data(),
                                .m = m,
                                .n = n,
                                .depth = depth});
          for (uint32_t i = 0; i < m; ++i) {
            for (uint32_t j = 0; j < n; ++j) {
              volatile float sum = 0;  // no contraction
              for (uint32_t k = 0; k < depth; ++k) {
                volatile float product = a[i * left.row + k * left.column] *
                                         b[k * right.row + j * right.column];
                sum = sum + product;
              }
              ASSERT_EQ(c[i * n + j], sum) << m << " " << n << " " << depth;
            }
          }
        }
      }
    }
  }
}

TEST(CpuKernelsTest, ProductsEndWithBiasRectifierAndMask) {
  const std::vector<float> a = {1, -1}, b = {2};
  const std::vector<float> bias = {0.5f}, mask = {1, 0};
  std::vector<float> c(2);
  ProductArgs args = {.a = {a.data(), 1, 1},
                      .b = {b.data(), 1, 1},
                      .bias = bias.data(),
                      .c = c.data(),
                      .m = 2,
                      .n = 1,
                      .depth = 1,
                      .is_rectified = 1};
  RunKernel(Kernel::kProduct, DType::kF32, args);
  EXPECT_THAT(c, ElementsAre(2.5f, 0));
  args.is_rectified = 0;
  args.bias = nullptr;
  args.mask = mask.data();
  RunKernel(Kernel::kProduct, DType::kF32, args);
  EXPECT_THAT(c, ElementsAre(2, 0));
  // Infinity and NaN reach the gradients, where the loss scaler looks.
  const std::vector<float> bad = {kNan, std::numeric_limits<float>::infinity()};
  args.a.data = bad.data();
  args.mask = nullptr;
  args.is_rectified = 1;
  RunKernel(Kernel::kProduct, DType::kF32, args);
  EXPECT_TRUE(std::isnan(c[0]));
  EXPECT_TRUE(std::isinf(c[1]));
}

// Sums are f32 and rounded once: 2049 does not fit into binary16's mantissa.
TEST(CpuKernelsTest, SixteenBitSumsAreRoundedOnce) {
  const std::vector<Float16> a(2050, trainer::ToFloat16(1));
  std::vector<Float16> c(1), sums(1);
  const Float16 one = trainer::ToFloat16(1);
  RunKernel(Kernel::kProduct, DType::kF16,
            ProductArgs{.a = {a.data(), 2050, 1},
                        .b = {&one, 0, 0},
                        .c = c.data(),
                        .m = 1,
                        .n = 1,
                        .depth = 2050});
  EXPECT_EQ(trainer::ToFloat(c[0]), 2050);
  RunKernel(
      Kernel::kColumnSum, DType::kF16,
      ColumnSumArgs{
          .values = a.data(), .sums = sums.data(), .rows = 2050, .columns = 1});
  EXPECT_EQ(trainer::ToFloat(sums[0]), 2050);
}

TEST(CpuKernelsTest, ExponentialsAreGoodToSomeUnitsInTheLastPlace) {
  double worst = 0;
  for (float x = 0; x > -87; x -= 0.00137f) {
    worst = std::max(worst, std::abs(Exp(x) / std::exp(double{x}) - 1));
  }
  EXPECT_LT(worst, 4e-7);
  EXPECT_EQ(Exp(0), 1.0f);
  EXPECT_EQ(Exp(-100), 0.0f);
  EXPECT_EQ(Exp(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_TRUE(std::isnan(Exp(kNan)));
}

TEST(CpuKernelsTest, SoftmaxGivesCrossEntropyAndItsGradients) {
  const std::vector<float> logits = {1, 2, 4, 0, 0, 0};
  const std::vector<int64_t> labels = {2, 0};
  std::vector<float> gradients(6), losses(4);
  RunKernel(Kernel::kSoftmax, DType::kF32,
            SoftmaxArgs{.logits = logits.data(),
                        .labels = labels.data(),
                        .gradients = gradients.data(),
                        .losses = losses.data(),
                        .scale = 2,
                        .rows = 2,
                        .classes = 3});
  const double sum = std::exp(1) + std::exp(2) + std::exp(4);
  EXPECT_NEAR(std::log(losses[0]) + losses[1], std::log(sum) - 4, 1e-6);
  EXPECT_NEAR(std::log(losses[2]) + losses[3], std::log(3), 1e-6);
  EXPECT_NEAR(gradients[0], 2 * std::exp(1) / sum, 1e-6);
  EXPECT_NEAR(gradients[2], 2 * (std::exp(4) / sum - 1), 1e-6);
  EXPECT_NEAR(gradients[3], 2 * (1.0 / 3 - 1), 1e-6);
}

// What nvcc made has a kernel for each of these.
TEST(CpuKernelsTest, AllAreInTheImageForGpus) {
  const std::span<const std::byte> image = GpuKernels();
  if (image.empty()) GTEST_SKIP() << "built without nvcc";
  for (const CpuKernel& kernel : CpuKernels()) {
    const std::string name = KernelName(kernel.kernel, kernel.dtype);
    const auto* const bytes = reinterpret_cast<const std::byte*>(name.c_str());
    // With its end: no prefix of another name.
    EXPECT_NE(
        std::search(image.begin(), image.end(), bytes, bytes + name.size() + 1),
        image.end())
        << name;
  }
}

}  // namespace
}  // namespace cohort::mlp
