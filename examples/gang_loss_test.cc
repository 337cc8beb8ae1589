#include "examples/gang_loss.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "trainer/local_comm.h"

namespace cohort::examples {
namespace {

using ::testing::HasSubstr;

TEST(GangLossTest, IsAMean) {
  trainer::LocalComm comm;
  EXPECT_THAT(MeanOverGang(comm, 3, 4), IsOkAndHolds(0.75));
}

TEST(GangLossTest, SaysWhatToDoWhenItIsNoNumber) {
  COHORT_EXPECT_OK(CheckLoss(1, 7));
  for (const double loss :
       {std::numeric_limits<double>::infinity(), std::nan("")}) {
    EXPECT_THAT(CheckLoss(loss, 7),
                StatusIs(absl::StatusCode::kInternal,
                         HasSubstr("at step 7: lower --lr")));
  }
}

}  // namespace
}  // namespace cohort::examples
