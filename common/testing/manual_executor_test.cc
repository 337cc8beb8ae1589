#include "common/testing/manual_executor.h"

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;

TEST(ManualExecutorTest, RunsInPostingOrder) {
  ManualExecutor executor;
  std::vector<int> order;
  executor.Post([&] {
    order.push_back(1);
    executor.Post([&] { order.push_back(3); });
  });
  executor.PostAfter(absl::ZeroDuration(), [&] { order.push_back(2); });
  EXPECT_THAT(order, IsEmpty());
  executor.RunUntilIdle();
  EXPECT_THAT(order, ElementsAre(1, 2, 3));
}

TEST(ManualExecutorTest, RunOneRunsTheOldest) {
  ManualExecutor executor;
  int n = 0;
  executor.Post([&] { n = 1; });
  executor.Post([&] { n = 2; });
  EXPECT_TRUE(executor.RunOne());
  EXPECT_EQ(n, 1);
  EXPECT_EQ(executor.pending(), 1u);
  EXPECT_TRUE(executor.RunOne());
  EXPECT_FALSE(executor.RunOne());
}

TEST(ManualExecutorTest, RunsEachTimerAtItsOwnInstant) {
  ManualExecutor executor;
  const absl::Duration start = executor.Monotonic();
  const absl::Time wall = executor.Wall();
  std::vector<absl::Duration> at;
  executor.PostAfter(absl::Seconds(2), [&] {
    at.push_back(executor.Monotonic() - start);
    executor.PostAfter(absl::Seconds(1),
                       [&] { at.push_back(executor.Monotonic() - start); });
  });
  executor.PostAfter(absl::Seconds(1),
                     [&] { at.push_back(executor.Monotonic() - start); });
  EXPECT_THAT(executor.UntilNext(), Optional(absl::Seconds(1)));
  executor.AdvanceBy(absl::Seconds(10));
  EXPECT_THAT(
      at, ElementsAre(absl::Seconds(1), absl::Seconds(2), absl::Seconds(3)));
  EXPECT_EQ(executor.Monotonic() - start, absl::Seconds(10));
  EXPECT_EQ(executor.Wall() - wall, absl::Seconds(10));
  EXPECT_EQ(executor.UntilNext(), std::nullopt);
}

TEST(ManualExecutorTest, DestroysWhatIsLeft) {
  auto held = std::make_shared<int>(0);
  {
    ManualExecutor executor;
    executor.PostAfter(absl::Hours(1), [held] { FAIL(); });
    executor.Post([held] { FAIL(); });
  }
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace cohort
