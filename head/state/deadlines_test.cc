#include "head/state/deadlines.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "common/testing/manual_executor.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class DeadlinesTest : public ::testing::Test {
 protected:
  static Due Slot(int first) { return {DueKind::kBackOff, AskId{{}, first}}; }
  std::vector<int> TakeDue(size_t most = 10) {
    std::vector<int> slots;
    for (const Due& due : deadlines_.TakeDue(DueKind::kBackOff, most)) {
      slots.push_back(due.ask().first);
    }
    return slots;
  }

  ManualExecutor time_;
  Deadlines deadlines_{absl::Milliseconds(100), time_};
};

TEST_F(DeadlinesTest, GivesWhatIsDueOnceInTheOrderOfTimes) {
  deadlines_.Set(Slot(1), absl::Seconds(3));
  deadlines_.Set(Slot(2), absl::Seconds(1));
  deadlines_.Set(Slot(3), absl::Seconds(2));
  time_.AdvanceBy(absl::Milliseconds(999));
  EXPECT_THAT(TakeDue(), IsEmpty());
  time_.AdvanceBy(absl::Seconds(1.5));
  EXPECT_THAT(TakeDue(1), ElementsAre(2));
  time_.AdvanceBy(absl::Seconds(9));
  EXPECT_THAT(TakeDue(), ElementsAre(3, 1));
  EXPECT_THAT(deadlines_.Of(DueKind::kBackOff), IsEmpty());
}

TEST_F(DeadlinesTest, KnowsOneTimeOfEach) {
  deadlines_.Set(Slot(1), absl::Seconds(10));
  deadlines_.Set(Slot(1), absl::Seconds(5));
  EXPECT_EQ(deadlines_.LeftOf(Slot(1)), absl::Seconds(5));
  deadlines_.Set(Slot(2), absl::Seconds(5));
  deadlines_.Set(Slot(3), absl::Seconds(5));
  deadlines_.Set(Slot(3), absl::InfiniteDuration());
  deadlines_.Erase(Slot(2));
  deadlines_.Erase(Slot(4));
  EXPECT_FALSE(deadlines_.Contains(Slot(2)));
  EXPECT_EQ(deadlines_.LeftOf(Slot(2)), std::nullopt);
  time_.AdvanceBy(absl::Hours(1));
  EXPECT_THAT(TakeDue(), ElementsAre(1));
}

TEST_F(DeadlinesTest, GivesNothingOfAnotherKind) {
  deadlines_.Set(Slot(1), absl::Seconds(1));
  time_.AdvanceBy(absl::Seconds(1));
  EXPECT_THAT(deadlines_.TakeDue(DueKind::kMetrics), IsEmpty());
  EXPECT_THAT(TakeDue(), ElementsAre(1));
}

// As ClusterState has it: the two times of a node's silence.
class LeaseTest : public ::testing::Test {
 protected:
  static constexpr absl::Duration kTimeout = absl::Seconds(1);

  void Grant(const NodeId& node) {
    deadlines_.Set({DueKind::kSuspect, node}, kTimeout / 2);
    deadlines_.Set({DueKind::kDead, node}, kTimeout);
  }
  // The nodes that it found dead; suspects are added to `suspect_`.
  std::vector<NodeId> Tick() {
    deadlines_.Tick();
    for (const Due& due : deadlines_.TakeDue(DueKind::kSuspect)) {
      suspect_.push_back(due.node());
    }
    std::vector<NodeId> dead;
    for (const Due& due : deadlines_.TakeDue(DueKind::kDead)) {
      dead.push_back(due.node());
    }
    return dead;
  }
  // Ticks each 100 ms of `span`; the nodes that were found dead.
  std::vector<NodeId> Run(absl::Duration span) {
    std::vector<NodeId> dead;
    for (absl::Duration t; t < span; t += absl::Milliseconds(100)) {
      time_.AdvanceBy(absl::Milliseconds(100));
      for (const NodeId& node : Tick()) dead.push_back(node);
    }
    return dead;
  }

  ManualExecutor time_;
  SeededRandom random_{1};
  std::vector<NodeId> suspect_;  // since the test emptied it
  const NodeId a_ = NodeId::New(random_);
  const NodeId b_ = NodeId::New(random_);
  Deadlines deadlines_{absl::Milliseconds(100), time_};
};

TEST_F(LeaseTest, EndsTheLeaseOfASilentNodeOneTickAfterItsTimeout) {
  Grant(a_);
  EXPECT_THAT(Run(absl::Milliseconds(1000)), IsEmpty());
  EXPECT_THAT(Run(absl::Milliseconds(100)), ElementsAre(a_));
  EXPECT_THAT(deadlines_.Of(DueKind::kDead), IsEmpty());
}

TEST_F(LeaseTest, KeepsANodeThatRenews) {
  Grant(a_);
  Grant(b_);
  for (int i = 0; i < 10; ++i) {
    EXPECT_THAT(Run(absl::Milliseconds(500)),
                testing::Not(testing::Contains(a_)));
    Grant(a_);
  }
  EXPECT_EQ(deadlines_.Of(DueKind::kDead).size(), 1u);
}

// LS-1: what was received before the second tick is handled before it.
TEST_F(LeaseTest, HandlesARenewalBeforeItExpiresTheLease) {
  Grant(a_);
  EXPECT_THAT(Run(absl::Milliseconds(1000)), IsEmpty());  // a suspect now
  Grant(a_);
  EXPECT_THAT(Run(absl::Milliseconds(900)), IsEmpty());
}

// LS-1; seed 8909070 of the simulation: a head that was stopped, or whose disk
// was slow, between the load of its state and its first tick.
TEST_F(LeaseTest, APauseBeforeTheFirstTickIsNoSilence) {
  Grant(a_);
  time_.AdvanceBy(absl::Seconds(3));
  EXPECT_THAT(Run(absl::Milliseconds(900)), IsEmpty());
  EXPECT_THAT(Run(absl::Milliseconds(300)), ElementsAre(a_));
}

// LS-1: SIGSTOP of the head for three leases.
TEST_F(LeaseTest, AddsAPauseOfTheHeadToEveryLease) {
  Grant(a_);
  EXPECT_THAT(Run(absl::Milliseconds(500)), IsEmpty());
  time_.AdvanceBy(absl::Seconds(3));
  EXPECT_THAT(Tick(), IsEmpty());
  EXPECT_THAT(suspect_, IsEmpty());
  EXPECT_THAT(Run(absl::Milliseconds(400)), IsEmpty());
  EXPECT_THAT(Run(absl::Milliseconds(300)), ElementsAre(a_));
}

TEST_F(LeaseTest, CountsAGapOfTwoTicksAsSilence) {
  Grant(a_);
  Tick();
  std::vector<NodeId> silent;
  for (int i = 0; i < 6; ++i) {
    time_.AdvanceBy(absl::Milliseconds(200));
    for (const NodeId& node : Tick()) silent.push_back(node);
  }
  EXPECT_THAT(silent, ElementsAre(a_));
}

TEST_F(LeaseTest, FindsANodeSuspectOnceAfterHalfItsTimeout) {
  Grant(a_);
  Grant(b_);
  Run(absl::Milliseconds(500));
  EXPECT_THAT(suspect_, IsEmpty());
  Grant(b_);
  Run(absl::Milliseconds(100));
  EXPECT_THAT(suspect_, ElementsAre(a_));
  Run(absl::Milliseconds(300));
  EXPECT_THAT(suspect_, ElementsAre(a_));
  Grant(a_);
  suspect_.clear();
  Run(absl::Milliseconds(600));
  EXPECT_THAT(suspect_, testing::UnorderedElementsAre(a_, b_));
}

// LS-1, for both: a pause of the head in the middle of a silence.
TEST_F(LeaseTest, SuspectsNobodyBecauseOfAPauseOfTheHead) {
  Grant(a_);
  Run(absl::Milliseconds(400));
  time_.AdvanceBy(absl::Seconds(30));
  Tick();
  EXPECT_THAT(suspect_, IsEmpty());
  Run(absl::Milliseconds(100));
  EXPECT_THAT(suspect_, IsEmpty());
  Run(absl::Milliseconds(100));
  EXPECT_THAT(suspect_, ElementsAre(a_));
}

}  // namespace
}  // namespace cohort::head
