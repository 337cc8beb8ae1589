#include "head/state/drain_deadlines.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class DrainDeadlinesTest : public ::testing::Test {
 protected:
  // Of a drain that was asked for `ago` ago with this deadline.
  Drain Asked(absl::Duration ago, absl::Duration deadline) {
    const absl::Time asked = time_.Wall() - ago;
    Drain drain;
    *drain.mutable_asked_at() = rpc::ToWire(asked);
    *drain.mutable_deadline() = rpc::ToWire(asked + deadline);
    return drain;
  }

  ManualExecutor time_;
  SeededRandom random_{1};
  const NodeId node_ = NodeId::New(random_);
  DrainDeadlines deadlines_{time_};
};

TEST_F(DrainDeadlinesTest, GivesANodeOnceWhenItsTimeHasCome) {
  deadlines_.Set(node_, absl::Seconds(5));
  time_.AdvanceBy(absl::Seconds(4));
  EXPECT_THAT(deadlines_.TakeDue(), IsEmpty());
  time_.AdvanceBy(absl::Seconds(1));
  EXPECT_FALSE(deadlines_.HasPassed(node_));
  EXPECT_THAT(deadlines_.TakeDue(), ElementsAre(node_));
  EXPECT_THAT(deadlines_.TakeDue(), IsEmpty());
  EXPECT_TRUE(deadlines_.HasPassed(node_));
  deadlines_.Set(node_, absl::Seconds(5));
  EXPECT_FALSE(deadlines_.HasPassed(node_));
}

TEST_F(DrainDeadlinesTest, ForgetsWhatWasReplacedOrCleared) {
  deadlines_.Set(node_, absl::Seconds(5));
  deadlines_.Set(node_, absl::InfiniteDuration());
  time_.AdvanceBy(absl::Hours(1));
  EXPECT_THAT(deadlines_.TakeDue(), IsEmpty());
  deadlines_.Set(node_, absl::ZeroDuration());
  deadlines_.Clear(node_);
  EXPECT_THAT(deadlines_.TakeDue(), IsEmpty());
}

// DR-2.
TEST_F(DrainDeadlinesTest, GoesOnWithTheRestAfterARestart) {
  deadlines_.Resume(node_, Asked(absl::Seconds(40), absl::Minutes(1)));
  time_.AdvanceBy(absl::Seconds(19));
  EXPECT_THAT(deadlines_.TakeDue(), IsEmpty());
  time_.AdvanceBy(absl::Seconds(1));
  EXPECT_THAT(deadlines_.TakeDue(), ElementsAre(node_));
}

// DR-2: whatever was done to the wall clock.
TEST_F(DrainDeadlinesTest, GivesNeverMoreThanWasAskedFor) {
  deadlines_.Resume(node_, Asked(-absl::Hours(9), absl::Minutes(1)));
  time_.AdvanceBy(absl::Minutes(1));
  EXPECT_THAT(deadlines_.TakeDue(), ElementsAre(node_));
  deadlines_.Resume(node_, Asked(absl::Hours(9), absl::Minutes(1)));
  EXPECT_THAT(deadlines_.TakeDue(), ElementsAre(node_));
  Drain endless = Asked(absl::Hours(9), absl::Minutes(1));
  endless.clear_deadline();
  deadlines_.Resume(node_, endless);
  time_.AdvanceBy(absl::Hours(9));
  EXPECT_THAT(deadlines_.TakeDue(), IsEmpty());
}

TEST(DrainOrder, IsRefusedWhenItCannotBe) {
  COHORT_EXPECT_OK(ValidateDrainOrder({}));
  COHORT_EXPECT_OK(
      ValidateDrainOrder({.reason = "fan 3", .deadline = absl::Hours(1)}));
  EXPECT_FALSE(ValidateDrainOrder({.reason = "a\nb"}).ok());
  EXPECT_FALSE(ValidateDrainOrder({.reason = std::string(2'000, 'x')}).ok());
  EXPECT_FALSE(
      ValidateDrainOrder({.reason = "", .deadline = -absl::Seconds(1)}).ok());
  EXPECT_FALSE(
      ValidateDrainOrder({.reason = "", .deadline = absl::Hours(1'000'000)})
          .ok());
}

}  // namespace
}  // namespace cohort::head
