// Health of nodes: silence, drains, lost leases, and what nodes may not say.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/status_util.h"
#include "common/testing/status_matchers.h"
#include "head/state/failure_class.h"
#include "head/state/testing/cluster_state_fixture.h"
#include "head/testing/messages.h"

namespace cohort::head {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class NodeHealthTest : public ClusterStateTest {
 protected:
  absl::StatusOr<NodeId> Drain(const std::string& text, DrainOrder order = {},
                               const std::string& request = "") {
    Transition transition;
    auto node = state_->DrainNode(Key(request), text, order, transition);
    Submit(std::move(transition));
    return node;
  }
  absl::StatusOr<NodeId> Undrain(const std::string& text,
                                 const std::string& request = "") {
    Transition transition;
    auto node = state_->UndrainNode(Key(request), text, transition);
    Submit(std::move(transition));
    return node;
  }
  RequestKey Key(const std::string& request) {
    return {.principal = "ann",
            .request_id = request.empty()
                              ? absl::StrCat("request-", ++requests_)
                              : request,
            .body_hash = "body"};
  }

  NodeState Shown(const NodeId& node) {
    return state_->nodes().ShownState(node);
  }
  // The kinds of the events about a node, in order.
  std::vector<std::string> EventsOf(const NodeId& node) {
    std::vector<std::string> kinds;
    for (const EventRecord& event : Events()) {
      if (IdOf<NodeId>(event.node_id()) == node) kinds.push_back(event.kind());
    }
    return kinds;
  }
  std::string LastText(const std::string& kind) {
    std::string text;
    for (const EventRecord& event : Events()) {
      if (event.kind() == kind) text = event.text();
    }
    return text;
  }
  std::vector<EventRecord> Events() {
    MemoryStore reader(disk_);
    auto events = LoadRecords<EventRecord>(reader);
    COHORT_EXPECT_OK(events);
    return *std::move(events);
  }
};

// ---- silence ----

TEST_F(NodeHealthTest, SuspectsANodeBeforeItIsDeadAndPlacesNothingThere) {
  Join(a_, 2);
  Pass(absl::Seconds(5) + 2 * limits_.tick_period);
  EXPECT_EQ(Shown(a_), v1::NODE_STATE_SUSPECT);
  const JobId job = SubmitJob(Spec(1, 1));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_PENDING);
  EXPECT_THAT(state_->ReasonOf(Job(job)), HasSubstr("suspect"));
  EXPECT_TRUE(state_->nodes().AvailableOn(a_).empty());
  Pass(limits_.tick_period, {a_});
  EXPECT_EQ(Shown(a_), v1::NODE_STATE_ALIVE);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
  EXPECT_THAT(EventsOf(a_),
              ElementsAre("node_registered", "node_suspect", "node_alive"));
}

TEST_F(NodeHealthTest, KeepsWhatRunsOnASuspectNodeAndEndsItWhenThatIsDead) {
  Join(a_, 2);
  const JobId job = SubmitJob(Spec(1, 1));
  Run(job);
  Pass(absl::Seconds(6));
  EXPECT_EQ(Shown(a_), v1::NODE_STATE_SUSPECT);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_RUNNING);
  Pass(absl::Seconds(5));
  EXPECT_EQ(Shown(a_), v1::NODE_STATE_DEAD);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_PENDING);
  EXPECT_THAT(EventsOf(a_),
              ElementsAre("node_registered", "node_suspect", "node_dead"));
}

TEST_F(NodeHealthTest, AReportIsASignOfLifeToo) {
  Join(a_, 2);
  const JobId job = SubmitJob(Spec(1, 1));
  Run(job);
  Pass(absl::Seconds(6));
  ASSERT_EQ(Shown(a_), v1::NODE_STATE_SUSPECT);
  Say(a_, At(job, Stage::kRunning));
  EXPECT_EQ(Shown(a_), v1::NODE_STATE_ALIVE);
}

TEST_F(NodeHealthTest, GoesOnWithASuspectNodeAfterARestart) {
  Join(a_, 2);
  Pass(absl::Seconds(6));
  ASSERT_EQ(Shown(a_), v1::NODE_STATE_SUSPECT);
  Reload();
  EXPECT_EQ(Shown(a_), v1::NODE_STATE_SUSPECT);
  Pass(absl::Seconds(9));  // a start grants full leases
  EXPECT_EQ(Shown(a_), v1::NODE_STATE_SUSPECT);
  Join(a_, 2);
  EXPECT_EQ(Shown(a_), v1::NODE_STATE_ALIVE);
  Reload();
  Pass(absl::Seconds(11));
  EXPECT_EQ(Shown(a_), v1::NODE_STATE_DEAD);
}

// LS-1.
TEST_F(NodeHealthTest, SuspectsNobodyAfterAPauseOfTheHead) {
  Join(a_, 2);
  Pass(absl::Seconds(1));
  time_.AdvanceBy(absl::Minutes(5));
  Pass(absl::Seconds(3));
  EXPECT_EQ(Shown(a_), v1::NODE_STATE_ALIVE);
}

// ---- drains ----

// DR-1.
TEST_F(NodeHealthTest, PlacesNothingOnADrainedNodeUntilItIsUndrained) {
  Join(a_, 2);
  EXPECT_THAT(Drain(a_.ToHex(), {.reason = "fan"}), IsOkAndHolds(a_));
  EXPECT_EQ(Shown(a_), v1::NODE_STATE_DRAINED);
  const JobId job = SubmitJob(Spec(1, 1));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_PENDING);
  EXPECT_THAT(state_->ReasonOf(Job(job)), HasSubstr("drained"));
  Reload();  // of the head
  EXPECT_EQ(Shown(a_), v1::NODE_STATE_DRAINED);
  Join(a_, 2);  // of the worker
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_PENDING);
  EXPECT_EQ(state_->nodes().Find(a_)->node.drain().reason(), "fan");
  EXPECT_EQ(state_->nodes().Find(a_)->node.drain().principal(), "ann");
  EXPECT_THAT(Undrain(absl::StrCat("node-", a_.ToHex().substr(0, 4))),
              IsOkAndHolds(a_));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
  EXPECT_EQ(Shown(a_), v1::NODE_STATE_ALIVE);
}

TEST_F(NodeHealthTest, LetsWhatRunsOnADrainedNodeEndByItself) {
  Join(a_, 2);
  const JobId job = SubmitJob(Spec(1, 1));
  Run(job);
  COHORT_ASSERT_OK(Drain(a_.ToHex()));
  EXPECT_EQ(Shown(a_), v1::NODE_STATE_DRAINING);
  Pass(absl::Minutes(2), {a_});
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_RUNNING);
  Say(a_, Exited(job, a_, 0));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Shown(a_), v1::NODE_STATE_DRAINED);
  EXPECT_THAT(EventsOf(a_),
              ElementsAre("node_registered", "node_drained", "node_empty"));
}

TEST_F(NodeHealthTest, MovesWhatRunsThereAtTheDeadlineAndChargesNothing) {
  Join(a_, 2);
  const JobId job = SubmitJob(Spec(1, 2));
  Run(job);
  Join(b_, 2);
  COHORT_ASSERT_OK(
      Drain(a_.ToHex(), {.reason = "fan", .deadline = absl::Seconds(30)}));
  Pass(absl::Seconds(29), {a_, b_});
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_RUNNING);
  TakeGoals(a_);
  Pass(absl::Seconds(1), {a_, b_});
  EXPECT_EQ(Attempt(job).state, v1::ATTEMPT_STATE_ENDING);
  EXPECT_EQ(Attempt(job).cause, v1::ATTEMPT_CAUSE_DRAINED);
  ASSERT_THAT(sent_[a_], SizeIs(1));
  EXPECT_EQ(GoalFor(sent_[a_][0]), v1::GOAL_STOP);
  EXPECT_EQ(rpc::FromWire(sent_[a_][0].processes(0).grace()),
            absl::Seconds(10));
  EXPECT_EQ(Shown(a_), v1::NODE_STATE_DRAINING);
  Say(a_, Exited(job, a_, 143, /*by_order=*/true));
  EXPECT_EQ(Shown(a_), v1::NODE_STATE_DRAINED);
  EXPECT_EQ(Job(job).row.failures(), 0);
  EXPECT_EQ(Job(job).row.attempts(), 2);
  EXPECT_EQ(Attempt(job).places[0].node, b_);
}

TEST_F(NodeHealthTest, MovesAnAttemptThatDoesNotRunYet) {
  Join(a_, 2);
  const JobId job = SubmitJob(Spec(1, 2));
  ASSERT_EQ(Attempt(job).state, v1::ATTEMPT_STATE_PREPARING);
  COHORT_ASSERT_OK(
      Drain(a_.ToHex(), {.reason = "", .deadline = absl::ZeroDuration()}));
  Pass(limits_.tick_period, {a_});
  EXPECT_EQ(Attempt(job).state, v1::ATTEMPT_STATE_ENDING);
  v1::ObservedPlace ended =
      EndedBy(At(job, Stage::kRunning), v1::END_CAUSE_EXITED);
  Say(a_, ended);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_PENDING);
  EXPECT_EQ(Job(job).row.failures(), 0);
}

TEST_F(NodeHealthTest, TellsThatAnUndrainedNodeMadeRoom) {
  Join(a_, 2);
  COHORT_ASSERT_OK(Drain(a_.ToHex(), {}));
  const JobId job = SubmitJob(Spec(1, 2));
  COHORT_ASSERT_OK(Undrain(a_.ToHex()));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
  const std::vector<EventRecord> events = Events();
  ASSERT_EQ(IdOf<JobId>(events.back().job_id()), job);
  for (const EventRecord& event : events) {
    if (event.number() != events.back().cause()) continue;
    EXPECT_EQ(event.kind(), "node_undrained");
    return;
  }
  FAIL() << "it has no cause";
}

TEST_F(NodeHealthTest, TellsThatADeadlineMovedWhatRanThere) {
  Join(a_, 2);
  const JobId job = SubmitJob(Spec(1, 2));
  Run(job);
  COHORT_ASSERT_OK(
      Drain(a_.ToHex(), {.reason = "fan", .deadline = absl::Seconds(30)}));
  Reload();
  Registration again = Node(a_, 2);
  SetPlaces(again.observed, {At(job, Stage::kRunning)});
  Join(again);
  // In the same moment another node dies.
  Join(b_, 2);
  Pass(absl::Seconds(31), {a_});
  std::map<uint64_t, EventRecord> by_number;
  uint64_t passed = 0;
  for (const EventRecord& event : Events()) {
    by_number[event.number()] = event;
    if (event.kind() == "node_deadline_passed") passed = event.number();
  }
  ASSERT_NE(passed, 0u);
  EXPECT_EQ(IdOf<NodeId>(by_number.at(passed).node_id()), a_);
  EXPECT_EQ(by_number.at(by_number.at(passed).cause()).kind(), "node_drained");
  // The job's next word is because of it.
  bool seen = false;
  for (const auto& [number, event] : by_number) {
    if (number < passed || IdOf<JobId>(event.job_id()) != job ||
        std::exchange(seen, true)) {
      continue;
    }
    EXPECT_EQ(event.cause(), passed) << event.text();
  }
  EXPECT_TRUE(seen);
}

// DR-2.
TEST_F(NodeHealthTest, GoesOnWithTheRestOfADeadlineAfterARestart) {
  Join(a_, 2);
  const JobId job = SubmitJob(Spec(1, 2));
  Run(job);
  COHORT_ASSERT_OK(
      Drain(a_.ToHex(), {.reason = "", .deadline = absl::Minutes(1)}));
  Pass(absl::Seconds(50), {a_});
  Reload();
  Registration again = Node(a_, 2);
  SetPlaces(again.observed, {At(job, Stage::kRunning)});
  Join(again);
  Pass(absl::Seconds(5), {a_});
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_RUNNING);
  Pass(absl::Seconds(6), {a_});
  EXPECT_EQ(Attempt(job).state, v1::ATTEMPT_STATE_ENDING);
}

TEST_F(NodeHealthTest, ReplacesReasonAndDeadlineOfADrainedNode) {
  Join(a_, 2);
  const JobId job = SubmitJob(Spec(1, 2));
  Run(job);
  COHORT_ASSERT_OK(
      Drain(a_.ToHex(), {.reason = "one", .deadline = absl::Seconds(5)}));
  COHORT_ASSERT_OK(Drain(a_.ToHex(), {.reason = "two"}));
  Pass(absl::Minutes(1), {a_});
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(state_->nodes().Find(a_)->node.drain().reason(), "two");
  COHORT_ASSERT_OK(
      Drain(a_.ToHex(), {.reason = "three", .deadline = absl::Seconds(5)}));
  COHORT_ASSERT_OK(Undrain(a_.ToHex()));
  Pass(absl::Minutes(1), {a_});
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_RUNNING);
}

// RQ-1.
TEST_F(NodeHealthTest, DrainsOnceForARepeatedRequest) {
  Join(a_, 2);
  EXPECT_THAT(Drain(a_.ToHex(), {}, "d"), IsOkAndHolds(a_));
  EXPECT_THAT(Undrain(a_.ToHex(), "u"), IsOkAndHolds(a_));
  EXPECT_THAT(Drain(a_.ToHex(), {}, "d"), IsOkAndHolds(a_));
  EXPECT_EQ(Shown(a_), v1::NODE_STATE_ALIVE);
  COHORT_EXPECT_OK(Drain(a_.ToHex()));
  Reload();
  EXPECT_THAT(Undrain(a_.ToHex(), "u"), IsOkAndHolds(a_));
  EXPECT_EQ(Shown(a_), v1::NODE_STATE_DRAINED);
  // And one that changed nothing is answered so later too.
  COHORT_EXPECT_OK(Undrain(a_.ToHex()));
  EXPECT_THAT(Undrain(a_.ToHex(), "noop"), IsOkAndHolds(a_));
  COHORT_EXPECT_OK(Drain(a_.ToHex()));
  EXPECT_THAT(Undrain(a_.ToHex(), "noop"), IsOkAndHolds(a_));
  EXPECT_EQ(Shown(a_), v1::NODE_STATE_DRAINED);
}

TEST_F(NodeHealthTest, KeepsTheDrainOfADeadNodeHoweverManyDie) {
  limits_.history.nodes.count_max = 1;
  Reload();
  Join(a_, 2);
  COHORT_ASSERT_OK(Drain(a_.ToHex(), {.reason = "fan"}));
  Pass(absl::Seconds(11));
  EXPECT_EQ(Shown(a_), v1::NODE_STATE_DEAD);
  for (int i = 0; i < 3; ++i) {
    Join(NodeId::New(random_), 1);
    Pass(absl::Seconds(11));
  }
  ASSERT_NE(state_->nodes().Find(a_), nullptr);
  EXPECT_TRUE(state_->nodes().Find(a_)->node.has_drain());
  EXPECT_EQ(state_->nodes().records().size(), 2u);
  Join(a_, 2);
  EXPECT_EQ(Shown(a_), v1::NODE_STATE_DRAINED);
}

// HI-2.  Without its row the store could not be loaded.
TEST_F(NodeHealthTest, KeepsADeadNodeWhileItsAttemptEndsElsewhere) {
  limits_.history.nodes.count_max = 0;
  Reload();
  Join(a_, 1);
  Join(b_, 1);
  const JobId job = SubmitJob(Spec(2, 1));
  Run(job);
  Pass(absl::Seconds(12), {b_});
  EXPECT_EQ(Shown(a_), v1::NODE_STATE_DEAD);
  ASSERT_EQ(Attempt(job).state, v1::ATTEMPT_STATE_ENDING);
  ASSERT_NE(state_->nodes().Find(a_), nullptr);
  Reload();
  Say(b_, Exited(job, b_, 137, /*by_order=*/true));
  Pass(absl::Seconds(1), {b_});
  EXPECT_EQ(state_->nodes().Find(a_), nullptr);
}

TEST_F(NodeHealthTest, RefusesADrainThatCannotBeAndChangesNothing) {
  Join(a_, 2);
  EXPECT_THAT(Drain("nobody"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(Drain(a_.ToHex(), {.reason = "a\nb"}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Drain(a_.ToHex(), {.reason = "", .deadline = -absl::Seconds(1)}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(Shown(a_), v1::NODE_STATE_ALIVE);
  limits_.drains_max = 1;
  Reload();
  Join(a_, 2);
  Join(b_, 2);
  COHORT_ASSERT_OK(Drain(a_.ToHex()));
  EXPECT_THAT(Drain(b_.ToHex()),
              StatusIs(absl::StatusCode::kResourceExhausted));
  COHORT_EXPECT_OK(Drain(a_.ToHex(), {.reason = "again"}));
}

TEST_F(NodeHealthTest, DrainsADeadNodeForWhenItReturns) {
  Join(a_, 2);
  Pass(absl::Seconds(11));
  COHORT_ASSERT_OK(Drain(a_.ToHex()));
  EXPECT_EQ(Shown(a_), v1::NODE_STATE_DEAD);
  Join(a_, 2);
  EXPECT_EQ(Shown(a_), v1::NODE_STATE_DRAINED);
}

// ---- devices ----

// PL-2.
TEST_F(NodeHealthTest, RefusesAGpuThatAnotherNodeOffers) {
  Registration first = Node(a_, 2);
  SetResource(first.node, kGpu, Amount::FromUnits(1));
  AddDevice(first.node, {.id = "GPU-1", .kind = "gpu"});
  Join(first);
  Join(first);  // itself again
  Registration second = first;
  second.id = b_;
  second.node.set_name("second");
  const auto refused = [&](const Registration& registration) {
    Transition transition;
    const absl::Status status =
        state_->RegisterNode(registration, transition).status();
    Submit(std::move(transition));
    return status;
  };
  const absl::Status status = refused(second);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                               HasSubstr("GPU-1")));
  EXPECT_THAT(status.message(), HasSubstr(first.node.name()));
  EXPECT_THAT(status.message(), HasSubstr(a_.ToHex()));
  EXPECT_EQ(GetReason(status), "gpu_offered_twice");
  EXPECT_EQ(state_->nodes().Find(b_), nullptr);
  Reload();
  EXPECT_THAT(refused(second), StatusIs(absl::StatusCode::kFailedPrecondition));
  // Simulated ones are no one's.
  second.node.mutable_devices(0)->set_simulated(true);
  Join(second);
  second.node.mutable_devices(0)->set_simulated(false);
  Pass(absl::Seconds(11));
  ASSERT_EQ(Shown(a_), v1::NODE_STATE_DEAD);
  Join(second);
  EXPECT_THAT(refused(first), StatusIs(absl::StatusCode::kFailedPrecondition));
}

// ---- lost leases ----

TEST_F(NodeHealthTest, SaysWhatAReturningDeadNodeStillHasAndWhenItIsGone) {
  Join(a_, 2);
  const JobId job = SubmitJob(Spec(1, 2));
  Run(job);
  const AttemptId lost = Attempt(job).id;
  const v1::ObservedPlace still = At(job, Stage::kRunning);
  Pass(absl::Seconds(11));
  Registration again = Node(a_, 2);
  SetPlaces(again.observed, {still});
  const RegisteredNode registered = Join(again);
  ASSERT_THAT(registered.desired, SizeIs(1));
  EXPECT_EQ(GoalFor(registered.desired[0]), v1::GOAL_FORGET);
  EXPECT_EQ(AttemptOf(registered.desired[0]), lost);
  EXPECT_THAT(registered.desired[0].reason(), HasSubstr("was silent for 10s"));
  EXPECT_THAT(LastText("lease_lost"), HasSubstr(lost.ToHex()));
  EXPECT_THAT(LastText("lease_lost"), HasSubstr("was silent for 10s"));
  EXPECT_THAT(LastText("node_returned"), HasSubstr(lost.ToHex()));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_PENDING);  // the node is still full
  v1::ObservedPlace ended = still;
  ended = Moved(ended, Stage::kEnded);
  Say(a_, ended);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
  EXPECT_THAT(EventsOf(a_),
              ElementsAre("node_registered", "node_suspect", "node_dead",
                          "node_registered", "lease_lost", "node_returned",
                          "lease_ended"));
  uint64_t told = 0;
  for (const EventRecord& event : Events()) {
    if (event.kind() == "lease_lost") told = event.number();
    if (event.kind() == "lease_ended") {
      EXPECT_EQ(event.cause(), told);
    }
  }
}

// PL-2; seed 5250 of the simulation: a daemon that was put back to a time
// before it started its ranks was told to run them, and does so before it hears
// that they are given up.
TEST_F(NodeHealthTest, WhatANodeMayStillStartKeepsItsPlace) {
  Join(a_, 2);
  const JobId job = SubmitJob(Spec(1, 2));
  Run(job);
  v1::ObservedPlace anew = At(job, Stage::kPreparing);
  Say(a_, anew);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_PENDING)
      << "the node may still start it";
  anew = Moved(anew, Stage::kPrepared);
  Say(a_, anew);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_PENDING);
  anew = Moved(anew, Stage::kStarting);
  Say(a_, anew);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_PENDING);
  anew = Moved(anew, Stage::kEnded);
  Say(a_, anew);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
}

// PL-2; seed 8905567 of the simulation: of two daemons with one identity the
// second had been told to run what the first did not know; what was placed on
// the first meanwhile must not begin beside it.
TEST_F(NodeHealthTest, WhatHasNotBegunGivesWayToWhatTheNodeStillHas) {
  Join(a_, 3);
  const JobId first = SubmitJob(Spec(1, 2));
  Run(first);
  const v1::ObservedPlace still = At(first, Stage::kStarting);
  Join(a_, 3);  // the other daemon, which knows nothing of it
  EXPECT_EQ(StateOf(first), v1::JOB_STATE_STARTING)
      << "again, as another attempt";
  const JobId small = SubmitJob(Spec(1, 1));
  EXPECT_EQ(StateOf(small), v1::JOB_STATE_STARTING);
  const AttemptId placed = Attempt(first).id;
  ASSERT_NE(placed, AttemptOf(still));

  Registration back = Node(a_, 3);
  SetPlaces(back.observed, {still, At(small, Stage::kPrepared)});
  const RegisteredNode registered = Join(back);
  std::map<AttemptId, Goal> goals;
  for (const v1::DesiredPlace& desired : registered.desired) {
    goals[AttemptOf(desired)] = GoalFor(desired);
  }
  EXPECT_EQ(goals[AttemptOf(still)], v1::GOAL_FORGET);
  EXPECT_EQ(goals[placed], v1::GOAL_FORGET) << "no room beside the orphan";
  EXPECT_EQ(goals[Attempt(small).id], v1::GOAL_RUN) << "for this one there is";
  EXPECT_EQ(StateOf(first), v1::JOB_STATE_PENDING)
      << "until the orphan has ended";
  EXPECT_EQ(Job(first).row.failures_by_class_size(), 1);
  EXPECT_EQ(FailuresOf(Job(first), v1::FAILURE_CLASS_INFRA), 2);
  EXPECT_EQ(Job(first).row.failures(), 0);
  v1::ObservedPlace gone = still;
  gone = Moved(gone, Stage::kEnded);
  Say(a_, gone);
  EXPECT_EQ(StateOf(first), v1::JOB_STATE_STARTING);
}

}  // namespace
}  // namespace cohort::head
