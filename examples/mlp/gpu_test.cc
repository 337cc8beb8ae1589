// On a real GPU: the network's kernels give the bits that CPUs give.  Skips
// where there is none.

#include <vector>

#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "examples/mlp/gpu_device.h"
#include "examples/mlp/network.h"
#include "examples/mlp/testing/kernel_cases.h"
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
    auto gpu = GpuDevice::Open(*driver);
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

// NW-1
TEST_P(MlpGpuTest, TrainingGivesTheLossesOfCpus) {
  std::vector<std::vector<double>> losses(2);
  for (Device* const device : std::vector<Device*>{&cpu_, gpu_.get()}) {
    trainer::LocalComm comm;
    auto network = Network::Create(
        *device, comm,
        {.shape = {.inputs = 784, .hidden = 512}, .precision = GetParam()});
    COHORT_ASSERT_OK(network);
    SeededRandom random(5);
    for (int step = 1; step <= 20; ++step) {
      std::vector<float> inputs(64 * 784);
      std::vector<int64_t> labels(64);
      for (float& input : inputs) input = static_cast<float>(random.Double());
      for (int64_t& label : labels) {
        label = static_cast<int64_t>(random.Below(10));
      }
      COHORT_ASSERT_OK((*network)->Backward(inputs, labels, 1024));
      COHORT_ASSERT_OK((*network)->Reduce());
      COHORT_ASSERT_OK((*network)->Update({}, step, 1.0f / 1024));
      const auto loss = (*network)->Loss();
      COHORT_ASSERT_OK(loss);
      losses[device == gpu_.get()].push_back(*loss);
    }
  }
  EXPECT_EQ(losses[0], losses[1]);
}

}  // namespace
}  // namespace cohort::mlp
