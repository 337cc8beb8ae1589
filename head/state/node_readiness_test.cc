// Nodes that say that no attempt could begin there.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "head/state/testing/cluster_state_fixture.h"

namespace cohort::head {
namespace {

using ::testing::HasSubstr;

class NodeReadinessTest : public ClusterStateTest {
 protected:
  void SayNotReady(const NodeId& node, const std::string& why) {
    Transition transition;
    state_->NoteReadiness(node, incarnations_[node], why, transition);
    Submit(std::move(transition));
  }
  NodeState Shown(const NodeId& node) {
    return state_->nodes().ShownState(node);
  }
};

TEST_F(NodeReadinessTest, ANodeThatIsNotReadyTakesNoNewWorkAndKeepsWhatRuns) {
  Join(a_, 2);
  const JobId running = SubmitJob(Spec(1, 1));
  Run(running);
  SayNotReady(a_, "/state: No space left on device");
  EXPECT_EQ(Shown(a_), v1::NODE_STATE_NOT_READY);
  const JobId job = SubmitJob(Spec(1, 1));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_PENDING);
  EXPECT_THAT(state_->ReasonOf(Job(job)), HasSubstr("1 not ready"));
  EXPECT_EQ(StateOf(running), v1::JOB_STATE_RUNNING);
  ASSERT_EQ(NodeEvents("node_not_ready").size(), 1u);
  EXPECT_THAT(NodeEvents("node_not_ready")[0].text(),
              HasSubstr("No space left on device"));
  // The same in other words, and again.
  SayNotReady(a_, "/state: still no space");
  SayNotReady(a_, "/state: still no space");
  EXPECT_EQ(NodeEvents("node_not_ready").size(), 1u);
  EXPECT_EQ(state_->nodes().NotReadyBecause(a_), "/state: still no space");

  SayNotReady(a_, "");
  EXPECT_EQ(Shown(a_), v1::NODE_STATE_ALIVE);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
  EXPECT_EQ(NodeEvents("node_ready").size(), 1u);
}

TEST_F(NodeReadinessTest, ItIsSaidWithEachRegistration) {
  Registration registration = Node(a_, 2);
  registration.node.set_not_ready("full");
  Join(registration);
  EXPECT_EQ(Shown(a_), v1::NODE_STATE_NOT_READY);
  const JobId job = SubmitJob(Spec(1, 1));
  Join(registration);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_PENDING);
  EXPECT_EQ(NodeEvents("node_not_ready").size(), 1u);
  Reload();
  Join(registration);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_PENDING);
  registration.node.clear_not_ready();
  Join(registration);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
}

TEST_F(NodeReadinessTest,
       AnAttemptThatItsNodeCouldNotBeginIsFreeAndGoesElsewhere) {
  Join(a_, 1);
  JobSpec spec = Spec(1, 1);
  spec.mutable_run()->set_max_failures(0);
  const JobId job = SubmitJob(spec);
  Join(b_, 1);
  SayNotReady(a_, "full");
  Say(a_, FailedBy(At(job, Stage::kPreparing), v1::END_CAUSE_NODE_FAILED,
                   "write /state/journal: No space left on device"));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
  EXPECT_EQ(Attempt(job).places[0].node, b_);
  EXPECT_EQ(Job(job).row.failures(), 0);
  EXPECT_EQ(Job(job).row.failure_class(), v1::FAILURE_CLASS_INFRA);
  EXPECT_THAT(Job(job).row.causes()[0], HasSubstr("No space left on device"));
}

TEST_F(NodeReadinessTest, StaleWordsChangeNothing) {
  Join(a_, 1);
  Transition transition;
  state_->NoteReadiness(a_, incarnations_[a_] - 1, "full", transition);
  state_->NoteReadiness(b_, 1, "full", transition);
  EXPECT_TRUE(transition.empty());
  EXPECT_EQ(Shown(a_), v1::NODE_STATE_ALIVE);
}

TEST_F(NodeReadinessTest, DrainsAndSilenceAreToldFirst) {
  Join(a_, 1);
  SayNotReady(a_, "full");
  Transition transition;
  COHORT_ASSERT_OK(state_->DrainNode(
      {.principal = "ann", .request_id = "d", .body_hash = "d"}, a_.ToHex(),
      {.reason = "", .deadline = absl::InfiniteDuration()}, transition));
  Submit(std::move(transition));
  EXPECT_EQ(Shown(a_), v1::NODE_STATE_DRAINED);
  Pass(limits_.node_timeout + absl::Seconds(1));
  EXPECT_EQ(Shown(a_), v1::NODE_STATE_DEAD);
  EXPECT_EQ(state_->nodes().NotReadyBecause(a_), "");
}

}  // namespace
}  // namespace cohort::head
