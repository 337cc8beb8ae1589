#include "actor/inline_executor.h"

#include <functional>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/manual_executor.h"

namespace cohort::actor {
namespace {

using ::testing::ElementsAre;

class InlineExecutorTest : public ::testing::Test {
 protected:
  ManualExecutor timers_;
  InlineExecutor executor_{timers_};
};

TEST_F(InlineExecutorTest, RunsATaskAtOnceAndWhatItPostsAfterIt) {
  std::vector<int> ran;
  executor_.Post([&] {
    executor_.Post([&] { ran.push_back(2); });
    ran.push_back(1);
  });
  EXPECT_THAT(ran, ElementsAre(1, 2));
}

TEST_F(InlineExecutorTest, TasksThatPostEachOtherNeedNoStack) {
  int left = 1'000'000;
  std::function<void()> next = [&] {
    if (--left > 0) executor_.Post([&] { next(); });
  };
  executor_.Post([&] { next(); });
  EXPECT_EQ(left, 0);
}

TEST_F(InlineExecutorTest, TimersRunElsewhere) {
  bool ran = false;
  executor_.PostAfter(absl::Seconds(1), [&] { ran = true; });
  EXPECT_FALSE(ran);
  timers_.AdvanceBy(absl::Seconds(1));
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace cohort::actor
