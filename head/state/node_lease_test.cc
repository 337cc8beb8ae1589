#include "head/state/node_lease.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "common/testing/manual_executor.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class NodeLeasesTest : public ::testing::Test {
 protected:
  // Ticks each 100 ms of `span`; the nodes that were found dead.
  std::vector<NodeId> Run(absl::Duration span) {
    std::vector<NodeId> dead;
    for (absl::Duration t; t < span; t += absl::Milliseconds(100)) {
      time_.AdvanceBy(absl::Milliseconds(100));
      const NodeLeases::Silent silent = leases_.Tick();
      dead.insert(dead.end(), silent.dead.begin(), silent.dead.end());
      suspect_.insert(suspect_.end(), silent.suspect.begin(),
                      silent.suspect.end());
    }
    return dead;
  }

  ManualExecutor time_;
  SeededRandom random_{1};
  std::vector<NodeId> suspect_;  // since the test emptied it
  const NodeId a_ = NodeId::New(random_);
  const NodeId b_ = NodeId::New(random_);
  NodeLeases leases_{
      {.timeout = absl::Seconds(1), .tick_period = absl::Milliseconds(100)},
      time_};
};

TEST_F(NodeLeasesTest, EndsTheLeaseOfASilentNodeOneTickAfterItsTimeout) {
  leases_.Grant(a_);
  EXPECT_THAT(Run(absl::Milliseconds(1000)), IsEmpty());
  EXPECT_THAT(Run(absl::Milliseconds(100)), ElementsAre(a_));
  EXPECT_EQ(leases_.size(), 0);
}

TEST_F(NodeLeasesTest, KeepsANodeThatRenews) {
  leases_.Grant(a_);
  leases_.Grant(b_);
  for (int i = 0; i < 10; ++i) {
    EXPECT_THAT(Run(absl::Milliseconds(500)),
                testing::Not(testing::Contains(a_)));
    leases_.Renew(a_);
  }
  EXPECT_EQ(leases_.size(), 1);
}

// LS-1: what was received before the second tick is handled before it.
TEST_F(NodeLeasesTest, HandlesARenewalBeforeItExpiresTheLease) {
  leases_.Grant(a_);
  EXPECT_THAT(Run(absl::Milliseconds(1000)), IsEmpty());  // a suspect now
  leases_.Renew(a_);
  EXPECT_THAT(Run(absl::Milliseconds(900)), IsEmpty());
}

// LS-1; seed 8909070 of the simulation: a head that was stopped, or whose disk
// was slow, between the load of its state and its first tick.
TEST_F(NodeLeasesTest, APauseBeforeTheFirstTickIsNoSilence) {
  leases_.Grant(a_);
  time_.AdvanceBy(absl::Seconds(3));
  EXPECT_THAT(Run(absl::Milliseconds(900)), IsEmpty());
  EXPECT_THAT(Run(absl::Milliseconds(300)), ElementsAre(a_));
}

// LS-1: SIGSTOP of the head for three leases.
TEST_F(NodeLeasesTest, AddsAPauseOfTheHeadToEveryLease) {
  leases_.Grant(a_);
  EXPECT_THAT(Run(absl::Milliseconds(500)), IsEmpty());
  time_.AdvanceBy(absl::Seconds(3));
  EXPECT_THAT(leases_.Tick().dead, IsEmpty());
  EXPECT_THAT(suspect_, IsEmpty());
  EXPECT_THAT(Run(absl::Milliseconds(400)), IsEmpty());
  EXPECT_THAT(Run(absl::Milliseconds(300)), ElementsAre(a_));
}

TEST_F(NodeLeasesTest, CountsAGapOfTwoTicksAsSilence) {
  leases_.Grant(a_);
  leases_.Tick();
  std::vector<NodeId> silent;
  for (int i = 0; i < 6; ++i) {
    time_.AdvanceBy(absl::Milliseconds(200));
    for (const NodeId& node : leases_.Tick().dead) silent.push_back(node);
  }
  EXPECT_THAT(silent, ElementsAre(a_));
}

TEST_F(NodeLeasesTest, FindsANodeSuspectOnceAfterHalfItsTimeout) {
  leases_.Grant(a_);
  leases_.Grant(b_);
  Run(absl::Milliseconds(500));
  EXPECT_THAT(suspect_, IsEmpty());
  leases_.Renew(b_);
  Run(absl::Milliseconds(100));
  EXPECT_THAT(suspect_, ElementsAre(a_));
  Run(absl::Milliseconds(300));
  EXPECT_THAT(suspect_, ElementsAre(a_));
  leases_.Renew(a_);
  suspect_.clear();
  Run(absl::Milliseconds(600));
  EXPECT_THAT(suspect_, testing::UnorderedElementsAre(a_, b_));
}

// LS-1, for both: a pause of the head in the middle of a silence.
TEST_F(NodeLeasesTest, SuspectsNobodyBecauseOfAPauseOfTheHead) {
  leases_.Grant(a_);
  Run(absl::Milliseconds(400));
  time_.AdvanceBy(absl::Seconds(30));
  EXPECT_THAT(leases_.Tick().suspect, IsEmpty());
  Run(absl::Milliseconds(100));
  EXPECT_THAT(suspect_, IsEmpty());
  Run(absl::Milliseconds(100));
  EXPECT_THAT(suspect_, ElementsAre(a_));
}

TEST_F(NodeLeasesTest, RenewsOnlyWhatHasALease) {
  leases_.Renew(a_);
  EXPECT_EQ(leases_.size(), 0);
  leases_.Grant(a_);
  leases_.Drop(a_);
  EXPECT_EQ(leases_.size(), 0);
}

}  // namespace
}  // namespace cohort::head
