#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "head/state/testing/turns_fixture.h"

namespace cohort::head {
namespace {

// What follows for the many attempts of one node, and from many nodes at once.
class NodeTurnsTest : public TurnsTest {
 protected:
  static constexpr int kJobs = 40;
  // Of what follows for one attempt.
  static constexpr size_t kUnit = 8;

  NodeTurnsTest() {
    Join(a_, kJobs);
    for (int i = 0; i < kJobs; ++i) jobs_.push_back(SubmitJob(Spec(1, 1)));
  }

  int CountOf(JobState state) {
    return static_cast<int>(state_->jobs().CountOf(state));
  }
  // Ticks until something follows.
  void PassUntilItGoesOn() {
    for (int i = 0; i < 1000 && !state_->HasToGoOn(); ++i) {
      Pass(limits_.tick_period);
      EXPECT_LE(rows_, kTurn + kOwn + kUnit);
    }
  }
  void Drain(absl::Duration deadline) {
    Transition transition;
    COHORT_EXPECT_OK(state_->DrainNode(
        {.principal = "alice",
         .request_id = absl::StrCat("drain-", ++requests_),
         .body_hash = "drain"},
        a_.ToHex(), {.reason = "", .deadline = deadline}, transition));
    Submit(std::move(transition));
  }
  void Undrain() {
    Transition transition;
    COHORT_EXPECT_OK(
        state_->UndrainNode({.principal = "alice",
                             .request_id = absl::StrCat("drain-", ++requests_),
                             .body_hash = "undrain"},
                            a_.ToHex(), transition));
    Submit(std::move(transition));
  }

  std::vector<JobId> jobs_;
};

TEST_F(NodeTurnsTest, WhatASilentNodeHadIsLostInTurns) {
  PassUntilItGoesOn();
  EXPECT_EQ(state_->nodes().Find(a_)->state, v1::NODE_STATE_DEAD);
  EXPECT_GT(CountOf(v1::JOB_STATE_STARTING), kJobs / 2);
  EXPECT_GE(Finish(/*restart=*/false), 5);
  EXPECT_EQ(CountOf(v1::JOB_STATE_PENDING), kJobs);
  for (const JobId& job : jobs_) {
    EXPECT_EQ(Attempt(job).detail,
              absl::StrCat("node ", state_->nodes().Find(a_)->node.name(),
                           " was silent for 10s"));
  }
}

TEST_F(NodeTurnsTest, WhatIsLeftIsLostAfterARestart) {
  PassUntilItGoesOn();
  EXPECT_GE(Finish(/*restart=*/true), 5);
  EXPECT_EQ(CountOf(v1::JOB_STATE_PENDING), kJobs);
  const uint64_t dead = state_->nodes().Find(a_)->cause;
  const auto events = LoadRecords<EventRecord>(*store_);
  COHORT_ASSERT_OK(events);
  int because = 0;
  for (const EventRecord& event : *events) {
    EXPECT_EQ(event.number() == dead, event.kind() == "node_dead");
    if (event.kind() == "attempt_moved") because += event.cause() == dead;
  }
  EXPECT_EQ(because, kJobs);
}

TEST_F(NodeTurnsTest, ANodeThatIsBackKeepsWhatWasNotLostYet) {
  for (const JobId& job : jobs_) Run(job);
  PassUntilItGoesOn();
  const int left = CountOf(v1::JOB_STATE_RUNNING);
  ASSERT_GT(left, 0);
  Registration again = Node(a_, kJobs);
  for (const JobId& job : jobs_) {
    *again.observed.add_places() = At(job, Stage::kRunning);
  }
  Join(again);
  EXPECT_FALSE(state_->HasToGoOn());
  EXPECT_EQ(CountOf(v1::JOB_STATE_RUNNING), left);
}

TEST_F(NodeTurnsTest, WhatADrainedNodeHasIsMovedInTurns) {
  Drain(absl::ZeroDuration());
  PassUntilItGoesOn();
  EXPECT_GE(Finish(/*restart=*/false), 5);
  for (const JobId& job : jobs_) {
    EXPECT_EQ(Attempt(job).state, v1::ATTEMPT_STATE_ENDING);
    EXPECT_EQ(Attempt(job).cause, v1::ATTEMPT_CAUSE_DRAINED);
  }
}

TEST_F(NodeTurnsTest, AMoveGoesOnAfterARestart) {
  Drain(absl::ZeroDuration());
  PassUntilItGoesOn();
  GoOn();
  Reload();
  PassUntilItGoesOn();
  Finish(/*restart=*/false);
  for (const JobId& job : jobs_) {
    EXPECT_EQ(Attempt(job).cause, v1::ATTEMPT_CAUSE_DRAINED);
  }
}

TEST_F(NodeTurnsTest, AnUndrainedNodeKeepsWhatWasNotMovedYet) {
  Drain(absl::ZeroDuration());
  PassUntilItGoesOn();
  Undrain();
  EXPECT_FALSE(state_->HasToGoOn());
  EXPECT_EQ(Attempt(jobs_.back()).cause, v1::ATTEMPT_CAUSE_NONE);
}

TEST_F(NodeTurnsTest, ManyNodesFallSilentAFewAtATime) {
  for (int i = 0; i < 600; ++i) Join(NodeId::New(random_), 1);
  int told = 0;
  for (int i = 0; i < 100; ++i) {
    Pass(limits_.tick_period);
    EXPECT_LE(rows_, 520u);
    told += rows_ > 400 ? 1 : 0;
  }
  EXPECT_GE(told, 4);
  EXPECT_EQ(state_->nodes().CountOf(v1::NODE_STATE_DEAD), 601);
}

// Found by reading: history may forget a node before its turn comes.
TEST_F(NodeTurnsTest, ANodeThatHistoryForgotIsPassedOver) {
  limits_.history.nodes.count_max = 0;
  Reload();
  Join(a_, kJobs);
  std::vector<NodeId> idle;
  for (int i = 0; i < 8; ++i) {
    idle.push_back(NodeId::New(random_));
    Join(idle.back(), 1);
  }
  for (int i = 0; i < 1000 && !state_->HasToGoOn(); ++i) {
    Pass(limits_.tick_period);
  }
  for (int i = 0; i < 20; ++i) Pass(limits_.tick_period);
  for (const NodeId& node : idle) {
    EXPECT_EQ(state_->nodes().Find(node), nullptr);
  }
  Finish(/*restart=*/false);
  EXPECT_EQ(CountOf(v1::JOB_STATE_PENDING), kJobs);
}

}  // namespace
}  // namespace cohort::head
