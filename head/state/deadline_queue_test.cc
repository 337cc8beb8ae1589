#include "head/state/deadline_queue.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(DeadlineQueue, GivesWhatIsDueOnceInTheOrderOfTimes) {
  DeadlineQueue<std::string> queue;
  queue.Set("late", absl::Seconds(3));
  queue.Set("early", absl::Seconds(1));
  queue.Set("later", absl::Seconds(2));
  EXPECT_THAT(queue.TakeDue(absl::Milliseconds(999)), IsEmpty());
  EXPECT_THAT(queue.TakeDue(absl::Seconds(2), 1), ElementsAre("early"));
  EXPECT_THAT(queue.TakeDue(absl::Seconds(9)), ElementsAre("later", "late"));
  EXPECT_EQ(queue.size(), 0u);
}

TEST(DeadlineQueue, KnowsOneTimeOfEachKey) {
  DeadlineQueue<int, absl::Time> queue;
  queue.Set(1, absl::FromUnixSeconds(10));
  queue.Set(1, absl::FromUnixSeconds(5));
  queue.Set(2, absl::FromUnixSeconds(5));
  queue.Erase(2);
  queue.Erase(3);
  EXPECT_FALSE(queue.contains(2));
  EXPECT_THAT(queue.TakeDue(absl::InfiniteFuture()), ElementsAre(1));
}

}  // namespace
}  // namespace cohort::head
