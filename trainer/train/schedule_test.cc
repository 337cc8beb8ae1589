#include "trainer/train/schedule.h"

#include "gtest/gtest.h"

namespace cohort::train {
namespace {

TEST(ScheduleTest, WarmsUpAndGoesDownByHalfACosine) {
  const CosineSchedule schedule{
      .peak = 1, .warm_up = 4, .steps = 14, .floor = 0.1};
  EXPECT_DOUBLE_EQ(CosineRate(schedule, 0), 0.25);
  EXPECT_DOUBLE_EQ(CosineRate(schedule, 3), 1);
  EXPECT_DOUBLE_EQ(CosineRate(schedule, 4), 1);
  EXPECT_DOUBLE_EQ(CosineRate(schedule, 9), 0.55);
  EXPECT_DOUBLE_EQ(CosineRate(schedule, 14), 0.1);
  EXPECT_DOUBLE_EQ(CosineRate(schedule, 1000), 0.1);
  // Without steps behind the warm-up.
  EXPECT_DOUBLE_EQ(CosineRate({.peak = 1}, 0), 0);
}

TEST(ScheduleTest, GoesDownInSteps) {
  const StepSchedule schedule{.first = 2, .every = 10, .factor = 0.5};
  EXPECT_DOUBLE_EQ(StepRate(schedule, 9), 2);
  EXPECT_DOUBLE_EQ(StepRate(schedule, 10), 1);
  EXPECT_DOUBLE_EQ(StepRate(schedule, 25), 0.5);
  EXPECT_DOUBLE_EQ(StepRate({.first = 2, .every = 0, .factor = 1}, 3), 2);
}

}  // namespace
}  // namespace cohort::train
