#include "examples/torch/device.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/types.h"
#include "torch/utils.h"

#include "common/testing/status_matchers.h"

namespace cohort::examples {
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

}  // namespace
}  // namespace cohort::examples
