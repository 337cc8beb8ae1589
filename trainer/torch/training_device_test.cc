#include "trainer/torch/training_device.h"

#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/types.h"
#include "torch/utils.h"

#include "common/testing/status_matchers.h"

namespace cohort::torch_adapter {
namespace {

using ::testing::HasSubstr;

TEST(TorchDeviceTest, ReadsALoss) {
  EXPECT_THAT(ReadLoss(torch::full({}, 0.5)), IsOkAndHolds(0.5));
}

// As a GPU's does behind a fault: a tensor on "meta" has no value to read.
TEST(TorchDeviceTest, TellsWhatReadingALossThrows) {
  EXPECT_THAT(ReadLoss(torch::empty({}, torch::kMeta)),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("LibTorch: ")));
}

TEST(TorchDeviceTest, IsTheCpuUnlessAGpuIsAskedFor) {
  const auto device = OpenDevice(false);
  COHORT_ASSERT_OK(device);
  EXPECT_TRUE(device->is_cpu());
}

TEST(TorchDeviceTest, RunsWhatWaitsForADevice) {
  const torch::Device gpu(torch::kCUDA, 1);
  for (const torch::Device device : {torch::Device(torch::kCPU), gpu}) {
    COHORT_EXPECT_OK(OnDevice(device, "it", [] { return absl::OkStatus(); }));
    EXPECT_THAT(OnDevice(device, "it",
                         []() -> absl::Status {
                           torch::empty({}, torch::kMeta).item<double>();
                           return absl::OkStatus();
                         }),
                StatusIs(absl::StatusCode::kInternal, HasSubstr("LibTorch: ")));
  }
}

TEST(TorchDeviceDeathTest, EndsOnAGpuThatDoesNotAnswer) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto hang = [] {
    static_cast<void>(OnDevice(
        torch::Device(torch::kCUDA, 1), "the weights",
        []() -> absl::Status {
          for (;;) pause();
        },
        absl::Milliseconds(1)));
  };
  EXPECT_EXIT(hang(), testing::ExitedWithCode(1),
              "cuda:1: the weights: not over after 1ms");
}

}  // namespace
}  // namespace cohort::torch_adapter
