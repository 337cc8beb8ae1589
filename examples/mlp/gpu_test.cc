// On a real GPU: the network's kernels give the bits that CPUs give.  Skips
// where there is none.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "common/check.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/testing/status_matchers.h"
#include "examples/mlp/gpu_device.h"
#include "examples/mlp/network.h"
#include "examples/mlp/testing/kernel_cases.h"
#include "trainer/comm/gpu_rendezvous.h"
#include "trainer/local_comm.h"

namespace cohort::mlp {
namespace {

using trainer::DType;

class MlpGpuTest : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (GpuKernels().empty()) GTEST_SKIP() << "built without nvcc";
    auto driver = trainer::cuda::LoadDriver();
    if (!driver.ok()) GTEST_SKIP() << driver.status().message();
    auto gpu = GpuDevice::Open(*driver, /*ordinal=*/0);
    COHORT_ASSERT_OK(gpu);
    gpu_ = *std::move(gpu);
  }

  std::unique_ptr<GpuDevice> gpu_;
  CpuDevice cpu_;
};

INSTANTIATE_TEST_SUITE_P(Types, MlpGpuTest,
                         ::testing::Values(DType::kF32, DType::kF16,
                                           DType::kBF16),
                         [](const auto& test) {
                           return std::string(ToString(test.param));
                         });

TEST_P(MlpGpuTest, KernelsGiveTheBitsOfCpus) {
  const auto expected = KernelCases(cpu_, GetParam()).Run();
  const auto results = KernelCases(*gpu_, GetParam()).Run();
  ASSERT_EQ(results.size(), expected.size());
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i], expected[i]) << expected[i].first;
  }
}

// Losses of some steps over samples that are the same on every device.
std::vector<double> Train(Device& device, trainer::Comm& comm,
                          DType precision) {
  std::vector<double> losses;
  const auto network = Network::Create(device, comm, {.precision = precision});
  COHORT_CHECK(network.ok()) << network.status();
  SeededRandom random(5);
  const auto step = [&](int number) -> absl::Status {
    std::vector<float> inputs(64 * 784);
    std::vector<int64_t> labels(64);
    for (float& input : inputs) input = static_cast<float>(random.Double());
    for (int64_t& label : labels) {
      label = static_cast<int64_t>(random.Below(10));
    }
    COHORT_RETURN_IF_ERROR((*network)->Prefetch(inputs, labels));
    COHORT_RETURN_IF_ERROR((*network)->Backward(1024));
    COHORT_RETURN_IF_ERROR((*network)->Reduce());
    COHORT_RETURN_IF_ERROR((*network)->Update({}, number, 1.0f / 1024));
    COHORT_ASSIGN_OR_RETURN(losses.emplace_back(), (*network)->Loss());
    return absl::OkStatus();
  };
  for (int number = 1; number <= 20; ++number) {
    const absl::Status done = step(number);
    EXPECT_THAT(done, IsOk());
    if (!done.ok()) break;
  }
  return losses;
}

// NW-1
TEST_P(MlpGpuTest, TrainingGivesTheLossesOfCpus) {
  trainer::LocalComm comm;
  const std::vector<double> expected = Train(cpu_, comm, GetParam());
  EXPECT_EQ(Train(*gpu_, comm, GetParam()), expected);
}

// The gradients in NCCL's memory.
TEST_P(MlpGpuTest, TrainingGivesTheLossesOfCpusOverNccl) {
  trainer::LocalComm control;
  const std::vector<double> expected = Train(cpu_, control, GetParam());
  trainer::Exchange exchange = [](absl::string_view, std::string mine,
                                  absl::Duration) {
    return std::vector<std::string>{std::move(mine)};
  };
  auto comm =
      trainer::ConnectGpuComm(trainer::GpuOfThisMachine(), control, exchange);
  if (GetReason(comm.status()) == trainer::kGpusUnusable) {
    GTEST_SKIP() << comm.status().message();
  }
  COHORT_ASSERT_OK(comm);
  EXPECT_EQ(Train(*gpu_, **comm, GetParam()), expected);
}

}  // namespace
}  // namespace cohort::mlp
