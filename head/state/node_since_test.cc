// Since when a node is in the state that people are shown.

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "head/state/testing/cluster_state_fixture.h"
#include "rpc/enum_text.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

class NodeSinceTest : public ClusterStateTest {
 protected:
  void Drain(bool drained) {
    const RequestKey key = {.principal = "ada",
                            .request_id = absl::StrCat("drain-", ++keys_),
                            .body_hash = "h"};
    Transition transition;
    COHORT_EXPECT_OK(drained
                         ? state_->DrainNode(key, a_.ToHex(), {}, transition)
                         : state_->UndrainNode(key, a_.ToHex(), transition));
    Submit(std::move(transition));
  }
  absl::Time Since() {
    return rpc::FromWire(state_->nodes().Find(a_)->node.since());
  }
  std::string State() { return EnumText(state_->nodes().ShownState(a_)); }

 private:
  int keys_ = 0;
};

TEST_F(NodeSinceTest, StaysWhileTheStateDoes) {
  Join(a_, 4);
  const absl::Time joined = time_.Wall();
  EXPECT_EQ(Since(), joined);
  time_.AdvanceBy(absl::Seconds(1));
  Join(a_, 4);
  Reload();
  Join(a_, 4);
  EXPECT_EQ(Since(), joined);

  Pass(limits_.node_timeout * 2);
  ASSERT_EQ(State(), "DEAD");
  const absl::Time died = Since();
  EXPECT_GT(died, joined);
  time_.AdvanceBy(absl::Seconds(1));
  Drain(true);
  time_.AdvanceBy(absl::Seconds(1));
  Drain(false);
  EXPECT_EQ(State(), "DEAD");
  EXPECT_EQ(Since(), died) << "what a person wants of a dead node";
}

TEST_F(NodeSinceTest, IsThatOfTheStateWhateverChangesIt) {
  Join(a_, 4);
  time_.AdvanceBy(absl::Seconds(1));
  const JobId job = SubmitJob(Spec(1, 1));
  Run(job);
  Drain(true);
  EXPECT_EQ(State(), "DRAINING");
  EXPECT_EQ(Since(), time_.Wall());
  const absl::Time draining = Since();
  time_.AdvanceBy(absl::Seconds(1));
  Drain(true);
  Reload();
  Join(a_, 4);  // which does not know the attempt: it is over
  EXPECT_EQ(State(), "DRAINED");
  EXPECT_GT(Since(), draining);

  // It has something after all.
  time_.AdvanceBy(absl::Seconds(1));
  Say(a_, At(job, Stage::kRunning));
  EXPECT_EQ(State(), "DRAINING");
  EXPECT_EQ(Since(), time_.Wall());
}

// A node whose daemon is away, or that this head has not heard of yet.  Its row
// says nothing of it, so that a restart of the head writes none for it.
TEST_F(NodeSinceTest, ABSENTIsOfTheRunningHead) {
  Join(a_, 4);
  const absl::Time joined = time_.Wall();
  time_.AdvanceBy(absl::Seconds(1));
  state_->WithdrawNode(a_, incarnations_[a_]);
  EXPECT_EQ(State(), "ABSENT");
  EXPECT_EQ(state_->nodes().ShownSince(a_), time_.Wall());
  EXPECT_EQ(Since(), joined) << "of the row";
  EXPECT_TRUE(state_->nodes().AvailableOn(a_).empty());
  Join(a_, 4);
  EXPECT_EQ(State(), "ALIVE");
  EXPECT_EQ(state_->nodes().ShownSince(a_), joined);

  time_.AdvanceBy(absl::Seconds(1));
  Reload();
  EXPECT_EQ(State(), "ABSENT");
  EXPECT_EQ(state_->nodes().ShownSince(a_), time_.Wall());
  Drain(true);
  EXPECT_EQ(State(), "DRAINED") << "what a person wants comes first";
  Drain(false);
  Pass(limits_.node_timeout * 2);
  EXPECT_EQ(State(), "DEAD") << "that it is silent comes first";
}

// What it says of itself is the same for every listener.
TEST_F(NodeSinceTest, OutlivesTheHeadWhileTheNodeIsNotReady) {
  Registration registration = Node(a_, 4);
  registration.node.set_not_ready("full");
  Join(registration);
  ASSERT_EQ(State(), "NOT_READY");
  const absl::Time not_ready = Since();
  time_.AdvanceBy(absl::Seconds(1));
  Reload();
  EXPECT_EQ(State(), "NOT_READY");
  registration.node.set_not_ready("full, in other words");
  Join(registration);
  EXPECT_EQ(State(), "NOT_READY");
  EXPECT_EQ(Since(), not_ready);

  time_.AdvanceBy(absl::Seconds(1));
  Reload();
  registration.node.clear_not_ready();
  Join(registration);
  EXPECT_EQ(State(), "ALIVE");
  EXPECT_EQ(Since(), time_.Wall());
}

}  // namespace
}  // namespace cohort::head
