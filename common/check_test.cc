#include "common/check.h"

#include "gtest/gtest.h"

namespace cohort {
namespace {

TEST(CheckDeathTest, CrashesWithConditionAndMessage) {
  EXPECT_DEATH(COHORT_CHECK(1 > 2) << "one is " << 1,
               "check_failed condition=\"1 > 2\" message=\"one is 1\"");
}

TEST(CheckTest, GoesOnWhenTheConditionHolds) {
  bool evaluated = false;
  COHORT_CHECK(true) << (evaluated = true);
  EXPECT_FALSE(evaluated);
  if (evaluated) COHORT_CHECK(false);
}

TEST(CheckTest, BugsAreCountedAndSurvived) {
  const int64_t before = BugCount();
  ::testing::internal::CaptureStderr();
  COHORT_BUG("the count went below zero");
  EXPECT_NE(::testing::internal::GetCapturedStderr().find(" E bug "),
            std::string::npos);
  EXPECT_EQ(BugCount(), before + 1);
}

}  // namespace
}  // namespace cohort
