// The code of mlp.cu itself, on a CPU, gives the bits of cpu_kernels.cc:
// indices, tiles, tails and the order of sums.  What nvcc and a GPU make of it
// is for gpu_test.cc.

// clang-format off
#include "examples/mlp/testing/cuda_on_host.h"
#include "examples/mlp/mlp.cu"
// clang-format on

#include <functional>
#include <map>
#include <string>

#include "gtest/gtest.h"

#include "examples/mlp/device.h"
#include "examples/mlp/testing/kernel_cases.h"

namespace cohort::mlp {
namespace {

using trainer::DType;

// A CPU's memory and mlp.cu's kernels.
class EmulatedDevice final : public Device {
 public:
  EmulatedDevice() {
#define COHORT_ADD(name, Args)                           \
  kernels_["cohort_mlp_" #name] = [](const void* args) { \
    cohort_mlp_##name(*static_cast<const Args*>(args));  \
  }
#define COHORT_ADD_ALL(suffix)                    \
  COHORT_ADD(product_##suffix, ProductArgs);      \
  COHORT_ADD(column_sum_##suffix, ColumnSumArgs); \
  COHORT_ADD(softmax_##suffix, SoftmaxArgs);      \
  COHORT_ADD(adam_##suffix, AdamArgs);            \
  COHORT_ADD(non_finite_##suffix, NonFiniteArgs); \
  COHORT_ADD(round_##suffix, RoundArgs)
    COHORT_ADD_ALL(f32);
    COHORT_ADD_ALL(f16);
    COHORT_ADD_ALL(bf16);
  }

  const std::string& name() const override { return cpu_.name(); }
  bool is_gpu() const override { return true; }
  absl::StatusOr<std::byte*> Allocate(size_t bytes) override {
    return cpu_.Allocate(bytes);
  }
  absl::Status Upload(std::byte* to, std::span<const std::byte> from) override {
    return cpu_.Upload(to, from);
  }
  absl::Status Download(std::span<std::byte> to,
                        const std::byte* from) override {
    return cpu_.Download(to, from);
  }
  absl::Status Mark(size_t) override { return absl::OkStatus(); }
  absl::Status Await(size_t, const Look&) override { return absl::OkStatus(); }
  absl::Status BeginUploads(std::span<const Copy> copies,
                            size_t behind) override {
    return cpu_.BeginUploads(copies, behind);
  }
  absl::Status JoinUploads() override { return cpu_.JoinUploads(); }
  absl::Status AwaitUploads() override { return cpu_.AwaitUploads(); }
  trainer::BatchMemory& batch_memory() override { return cpu_.batch_memory(); }

 private:
  absl::Status LaunchKernel(Kernel kernel, DType dtype, Grid grid,
                            const void* args) override {
    const auto& run = kernels_.at(KernelName(kernel, dtype));
    CudaBlock::Running().RunGrid({grid.x, grid.y}, kThreads,
                                 [&run, args] { run(args); });
    return absl::OkStatus();
  }

  CpuDevice cpu_;
  std::map<std::string, std::function<void(const void*)>> kernels_;
};

class CudaKernelsTest : public ::testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(Types, CudaKernelsTest,
                         ::testing::Values(DType::kF32, DType::kF16,
                                           DType::kBF16),
                         [](const auto& test) {
                           return std::string(ToString(test.param));
                         });

TEST_P(CudaKernelsTest, GiveTheBitsOfCpus) {
  CpuDevice cpu;
  EmulatedDevice emulated;
  const auto expected = KernelCases(cpu, GetParam()).Run();
  const auto results = KernelCases(emulated, GetParam()).Run();
  ASSERT_EQ(results.size(), expected.size());
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i], expected[i]) << expected[i].first;
  }
}

}  // namespace
}  // namespace cohort::mlp
