// What becomes of a job's slots under restart policies ONE and NONE, and when
// it is resized: PR-1, PR-3, PR-4, JB-2.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/gang_limits.h"
#include "common/testing/status_matchers.h"
#include "head/state/change.h"
#include "head/state/testing/cluster_state_fixture.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class RestartPolicyTest : public ClusterStateTest {
 protected:
  JobSpec OneByOne(int workers, RestartPolicy policy) {
    JobSpec spec = Spec(workers, 1);
    spec.mutable_run()->set_restart(policy);
    spec.mutable_run()->clear_max_failures();
    spec.mutable_run()->set_retry_delay_us(0);
    return spec;
  }
  JobId RunOne(int workers, RestartPolicy policy = v1::RESTART_POLICY_ONE) {
    const JobId job = SubmitJob(OneByOne(workers, policy));
    Run(job);
    return job;
  }
  // Of one worker that is placed before slots that wait.
  JobSpec Urgent() {
    JobSpec spec = Spec(1, 1);
    spec.set_priority(1);
    return spec;
  }
  JobId RunWithBackOff() {
    JobSpec spec = OneByOne(1, v1::RESTART_POLICY_ONE);
    spec.mutable_run()->set_retry_delay_us(1'000'000);
    const JobId job = SubmitJob(spec);
    Run(job);
    return job;
  }
  void Drain(const NodeId& node, const DrainOrder& order) {
    Transition transition;
    COHORT_EXPECT_OK(state_->DrainNode({.principal = "ada", .request_id = "d"},
                                       state_->nodes().Find(node)->node.name(),
                                       order, transition));
    Submit(std::move(transition));
  }
  const Process& Slot(const JobId& job, int slot) {
    return Attempt(job).processes.at(static_cast<size_t>(slot));
  }
  // The node says that the slot's process has ended, the others run on.
  v1::ObservedPlace Ends(const JobId& job, int slot, int code,
                         v1::EndCause cause = v1::END_CAUSE_EXITED) {
    v1::ObservedPlace place = At(job, Stage::kRunning);
    for (v1::ObservedProcess& each : *place.mutable_processes()) {
      const Process& process = Slot(job, each.slot());
      // What has not begun has not.
      if (process.state == v1::PROCESS_STATE_PENDING) {
        each.set_state(v1::PROCESS_STATE_PENDING);
      }
      if (process.state == v1::PROCESS_STATE_ENDED)
        each.set_state(process.state);
      if (each.slot() != slot) continue;
      each.set_state(v1::PROCESS_STATE_ENDED);
      each.set_end_cause(cause);
      if (cause == v1::END_CAUSE_EXITED) each.mutable_exit()->set_code(code);
      each.set_exit_order(1);
    }
    return place;
  }
  void Fail(const JobId& job, int slot, int code = 3) {
    const NodeId node = Slot(job, slot).node;  // it may move
    Say(node, Ends(job, slot, code));
  }
  // What is placed begins.
  void Begin(const JobId& job) {
    for (const Place& place : std::vector<Place>(Attempt(job).places)) {
      v1::ObservedPlace seen = At(job, Stage::kRunning);
      for (v1::ObservedProcess& each : *seen.mutable_processes()) {
        const ProcessState state = Slot(job, each.slot()).state;
        if (state > v1::PROCESS_STATE_RUNNING) each.set_state(state);
      }
      Say(place.node, seen);
    }
  }
  absl::Status Resize(const JobId& job, int workers) {
    Transition transition;
    const absl::Status status =
        state_->ResizeJob({.principal = "cluster",
                           .request_id = absl::StrCat("resize-", ++requests_),
                           .body_hash = "resize"},
                          job, workers, transition);
    Submit(std::move(transition));
    return status;
  }
};

TEST_F(RestartPolicyTest, OneFillsTheSlotAgainAndLeavesTheOthersAlone) {
  Join(a_, 2);
  Join(b_, 1);
  const JobId job = RunOne(3);
  const AttemptId attempt = Attempt(job).id;
  const uint64_t first = Slot(job, 1).incarnation;
  const uint64_t other = Slot(job, 0).incarnation;
  const int64_t epoch = Job(job).row.epoch();
  Fail(job, 1);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Attempt(job).id, attempt);
  EXPECT_GT(Slot(job, 1).incarnation, first);
  EXPECT_EQ(Slot(job, 1).state, v1::PROCESS_STATE_PENDING);
  EXPECT_EQ(Slot(job, 0).incarnation, other);
  EXPECT_GT(Job(job).row.epoch(), epoch);
  EXPECT_EQ(Attempt(job).epoch, Job(job).row.epoch());
  EXPECT_EQ(Job(job).row.failures(), 1);
  Begin(job);
  EXPECT_EQ(Slot(job, 1).state, v1::PROCESS_STATE_RUNNING);
  // PR-3: what an earlier incarnation says changes nothing.
  v1::ObservedPlace late = Ends(job, 1, 9);
  for (v1::ObservedProcess& each : *late.mutable_processes()) {
    if (each.slot() == 1) each.set_incarnation(first);
  }
  v1::ObservedProcess* const now = late.add_processes();
  now->set_slot(1);
  now->set_incarnation(Slot(job, 1).incarnation);
  now->set_state(v1::PROCESS_STATE_RUNNING);
  Say(Slot(job, 1).node, late);
  EXPECT_EQ(Slot(job, 1).state, v1::PROCESS_STATE_RUNNING);
  EXPECT_EQ(Job(job).row.failures(), 1);
}

TEST_F(RestartPolicyTest, OneTransitionMakesAtMostOneEpoch) {
  Join(a_, 3);
  const JobId job = RunOne(3);
  const int64_t epoch = Job(job).row.epoch();
  v1::ObservedPlace all = ExitedAt(Attempt(job), 1);
  for (v1::ObservedProcess& each : *all.mutable_processes()) {
    each.set_state(v1::PROCESS_STATE_EXITED);  // descendants are left
  }
  Say(a_, all);
  EXPECT_EQ(Job(job).row.epoch(), epoch + 1);
  EXPECT_EQ(Slot(job, 0).state, v1::PROCESS_STATE_EXITED)
      << "PR-1: nothing is begun beside what is left";
}

TEST_F(RestartPolicyTest, BacksOffInItsRoomTwiceAsLongEachTime) {
  Join(a_, 1);
  const JobId job = RunWithBackOff();
  const JobId other = SubmitJob(OneByOne(1, v1::RESTART_POLICY_ONE));
  Fail(job, 0);
  EXPECT_TRUE(Slot(job, 0).backs_off());
  EXPECT_THAT(state_->ReasonOf(Job(job)), HasSubstr("rank 0 starts again in"));
  EXPECT_EQ(Job(job).row.causes_size(), 1);
  EXPECT_EQ(state_->WaitingByReason().at("back_off"), 1);
  Pass(absl::Seconds(0.8), {a_});
  EXPECT_TRUE(Slot(job, 0).backs_off());
  Pass(absl::Seconds(0.4), {a_});
  EXPECT_EQ(Slot(job, 0).node, a_);
  EXPECT_FALSE(Slot(job, 0).backs_off());
  Begin(job);
  Fail(job, 0);
  Pass(absl::Seconds(1.6), {a_});
  EXPECT_TRUE(Slot(job, 0).backs_off());
  Reload();  // it begins again
  Registration again = Node(a_, 1);
  SetPlaces(again.observed, {OnlyOn(a_, &Attempt(job), Ends(job, 0, 3))});
  Join(again);
  Pass(absl::Seconds(1.6), {a_});
  EXPECT_TRUE(Slot(job, 0).backs_off());
  Pass(absl::Seconds(0.6), {a_});
  EXPECT_FALSE(Slot(job, 0).backs_off());
  EXPECT_FALSE(Slot(job, 0).waits());
  EXPECT_EQ(Job(other).row.state(), v1::JOB_STATE_PENDING)
      << "the room was the slot's all the time";
}

TEST_F(RestartPolicyTest, AChangeCountsARowOfEachSlot) {
  Change change;
  change.slots[AttemptId::New(random_)] = {0, 1, 2};
  EXPECT_EQ(change.row_count(), 3u);
}

// Found by reading.
TEST_F(RestartPolicyTest, TiedSlotsWaitForTheOneThatBacksOffLongest) {
  Join(a_, 2);
  const NodeId third = NodeId::New(random_);
  JobSpec spec = OneByOne(2, v1::RESTART_POLICY_ONE);
  spec.mutable_run()->set_retry_delay_us(30'000'000);
  spec.mutable_scaling()->set_placement_strategy(
      v1::PLACEMENT_STRATEGY_STRICT_PACK);
  const JobId job = SubmitJob(spec);
  Run(job);
  Fail(job, 0);
  Pass(absl::Seconds(31), {a_});
  Begin(job);
  Join(b_, 1);
  Join(third, 2);
  Pass(limits_.node_timeout + absl::Seconds(1), {b_, third});
  ASSERT_TRUE(Slot(job, 0).backs_off());
  EXPECT_TRUE(Slot(job, 1).waits()) << "b_ has room for it alone";
  Pass(absl::Seconds(31), {b_, third});
  EXPECT_EQ(Slot(job, 0).node, third);
  EXPECT_EQ(Slot(job, 1).node, third);
}

TEST_F(RestartPolicyTest, RankZeroHasItsPortWhenItIsFilledAgainInItsPlace) {
  Join(a_, 2);
  const JobId job = RunOne(2);
  const int port = Attempt(job).master_port;
  ASSERT_GT(port, 0);
  Fail(job, 0);
  ASSERT_EQ(Slot(job, 0).node, a_);
  EXPECT_EQ(Attempt(job).master_port, port);
}

TEST_F(RestartPolicyTest, LeavesItsRoomWhenItsNodeIsLost) {
  Join(a_, 1);
  const JobId job = RunWithBackOff();
  Fail(job, 0);
  ASSERT_TRUE(Slot(job, 0).backs_off());
  Join(b_, 1);
  Pass(limits_.node_timeout, {b_});
  Pass(absl::Seconds(2), {b_});
  EXPECT_EQ(Slot(job, 0).node, b_);
}

TEST_F(RestartPolicyTest, LeavesItsRoomToADrainAndToWhoeverFollowsItsJob) {
  Join(a_, 1);
  const JobId job = RunWithBackOff();
  Fail(job, 0);
  Drain(a_, {.reason = "kernel", .deadline = absl::Seconds(0.2)});
  EXPECT_FALSE(Slot(job, 0).waits());
  Pass(absl::Seconds(0.6), {a_});
  EXPECT_TRUE(Slot(job, 0).backs_off());
  EXPECT_TRUE(Slot(job, 0).waits());
  Join(b_, 1);
  Pass(absl::Seconds(2), {b_});
  EXPECT_EQ(Slot(job, 0).node, b_);
  Begin(job);
  Fail(job, 0);
  const JobId other = SubmitJob(OneByOne(1, v1::RESTART_POLICY_ONE));
  EXPECT_EQ(Job(other).row.state(), v1::JOB_STATE_PENDING);
  COHORT_EXPECT_OK(StopJob(job));
  EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_STOPPED);
  EXPECT_EQ(Job(other).row.state(), v1::JOB_STATE_STARTING);
}

TEST_F(RestartPolicyTest, ASpentBudgetEndsTheJob) {
  Join(a_, 2);
  JobSpec spec = OneByOne(2, v1::RESTART_POLICY_ONE);
  spec.mutable_run()->set_max_failures(1);
  const JobId job = SubmitJob(spec);
  Run(job);
  Fail(job, 0);
  Begin(job);
  // Budgets are per slot.
  Fail(job, 1);
  Begin(job);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_RUNNING);
  Fail(job, 1, 7);
  EXPECT_EQ(Attempt(job).state, v1::ATTEMPT_STATE_ENDING);
  Say(a_, EndedBy(At(job, Stage::kRunning), v1::END_CAUSE_EXITED));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_FAILED);
  EXPECT_EQ(Job(job).row.failed_rank(), 1);
  EXPECT_EQ(Job(job).row.exit().code(), 7);
  EXPECT_EQ(Job(job).row.failures(), 3);
  EXPECT_THAT(*Job(job).row.causes().rbegin(), HasSubstr("--max-failures 1"));
}

TEST_F(RestartPolicyTest, WithoutABudgetItNeverEnds) {
  Join(a_, 1);
  const JobId job = RunOne(1);
  for (int i = 0; i < 20; ++i) {
    Fail(job, 0);
    Begin(job);
  }
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Slot(job, 0).failures, 20);
}

TEST_F(RestartPolicyTest, ASlotIsCompleteWithExitZero) {
  Join(a_, 2);
  const JobId job = RunOne(2);
  const int64_t epoch = Job(job).row.epoch();
  Fail(job, 0, 0);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Job(job).row.epoch(), epoch);
  EXPECT_EQ(state_->nodes().AvailableOn(a_).Get(kCpu), Amount::FromUnits(1));
  Reload();
  Registration again = Node(a_, 2);
  SetPlaces(again.observed, {Ends(job, 0, 0)});
  Join(again);
  Begin(job);
  EXPECT_TRUE(Slot(job, 0).succeeded());
  Fail(job, 1, 0);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(RestartPolicyTest, NoneLetsTheOthersFinishAndFails) {
  Join(a_, 3);
  const JobId job = RunOne(3, v1::RESTART_POLICY_NONE);
  Fail(job, 1, 5);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_RUNNING);
  Fail(job, 2, 6);
  Fail(job, 0, 0);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_FAILED);
  EXPECT_EQ(Job(job).row.failed_rank(), 1) << "the first one";
  EXPECT_EQ(Job(job).row.exit().code(), 5);
  EXPECT_EQ(Job(job).row.attempts(), 1);
  const JobId good = RunOne(1, v1::RESTART_POLICY_NONE);
  Fail(good, 0, 0);
  EXPECT_EQ(StateOf(good), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(RestartPolicyTest, ALostNodeMovesItsSlotsAndChargesNobody) {
  Join(a_, 1);
  Join(b_, 1);
  for (const RestartPolicy policy :
       {v1::RESTART_POLICY_ONE, v1::RESTART_POLICY_NONE}) {
    const JobId job = RunOne(1, policy);
    const NodeId lost = Slot(job, 0).node;
    const NodeId other = lost == a_ ? b_ : a_;
    Pass(absl::Seconds(11), {other});
    EXPECT_EQ(Slot(job, 0).node, other);
    EXPECT_EQ(Job(job).row.failures(), 0);
    EXPECT_EQ(Slot(job, 0).moves, 1);
    Say(other, At(job, Stage::kPrepared));
    Begin(job);
    Fail(job, 0, 0);
    EXPECT_EQ(StateOf(job), v1::JOB_STATE_SUCCEEDED);
    Join(lost, 1);
  }
}

// It is not given to the slot's next process before it is gone.
TEST_F(RestartPolicyTest, WhatALostNodeStillRunsHasNoLease) {
  Join(a_, 1);
  const JobId job = RunOne(1);
  const v1::ObservedPlace old = At(job, Stage::kRunning);
  Pass(absl::Seconds(11));
  ASSERT_TRUE(Slot(job, 0).waits());
  Registration back = Node(a_, 2);
  SetPlaces(back.observed, {old});
  Join(back);
  ASSERT_EQ(Slot(job, 0).node, a_) << "beside it";
  EXPECT_TRUE(state_->nodes().AvailableOn(a_).empty());
  v1::ObservedPlace gone = old;
  gone.mutable_processes(0)->set_state(v1::PROCESS_STATE_ENDED);
  Say(a_, gone);
  EXPECT_EQ(state_->nodes().AvailableOn(a_).Get(kCpu), Amount::FromUnits(1));
}

TEST_F(RestartPolicyTest, ADrainMovesSlotsAtItsDeadline) {
  Join(a_, 1);
  const JobId job = RunOne(1);
  Drain(a_, {.reason = "kernel", .deadline = absl::Seconds(2)});
  EXPECT_EQ(sent_[a_].back().notice().kind(), v1::NOTICE_KIND_DRAIN);
  Pass(absl::Seconds(3), {a_});
  EXPECT_EQ(GoalFor(sent_[a_].back()), v1::GOAL_STOP);
  Join(b_, 1);
  v1::ObservedPlace stopped = Ends(job, 0, 143);
  stopped.mutable_processes(0)->set_ended_by_order(true);
  Say(a_, stopped);
  EXPECT_EQ(Slot(job, 0).node, b_);
  EXPECT_EQ(Job(job).row.failures(), 0);
  EXPECT_EQ(Attempt(job).number, 1);
}

TEST_F(RestartPolicyTest, StrictSpreadHoldsForASlotThatIsFilledAgain) {
  Join(a_, 2);
  Join(b_, 2);
  JobSpec spec = OneByOne(2, v1::RESTART_POLICY_ONE);
  spec.mutable_scaling()->set_placement_strategy(
      v1::PLACEMENT_STRATEGY_STRICT_SPREAD);
  const JobId job = SubmitJob(spec);
  Run(job);
  const NodeId first = Slot(job, 0).node;
  Fail(job, 0);
  EXPECT_EQ(Slot(job, 0).node, first);
  EXPECT_NE(Slot(job, 0).node, Slot(job, 1).node);
}

TEST_F(RestartPolicyTest, StrictSpreadStaysInItsDomainToo) {
  const NodeId c = NodeId::New(random_);
  for (const auto& [node, rack] :
       std::map<NodeId, std::string>{{a_, "r1"}, {b_, "r1"}, {c, "r2"}}) {
    Registration registration = Node(node, 1);
    (*registration.node.mutable_labels())["rack"] = rack;
    Join(registration);
  }
  JobSpec spec = OneByOne(2, v1::RESTART_POLICY_ONE);
  spec.mutable_scaling()->set_placement_strategy(
      v1::PLACEMENT_STRATEGY_STRICT_SPREAD);
  spec.mutable_scaling()->set_topology_level("rack");
  spec.mutable_scaling()->set_topology_required(true);
  const JobId job = SubmitJob(spec);
  Run(job);
  Pass(absl::Seconds(11), {Slot(job, 1).node, c});
  EXPECT_TRUE(Slot(job, 0).waits()) << "the only other node is of another rack";
}

TEST_F(RestartPolicyTest, SlotsThatWaitAllStayInOneDomain) {
  Registration first = Node(a_, 2);
  (*first.node.mutable_labels())["rack"] = "r1";
  Join(first);
  JobSpec spec = OneByOne(2, v1::RESTART_POLICY_ONE);
  spec.mutable_run()->set_retry_delay_us(1'000'000);
  spec.mutable_scaling()->set_topology_level("rack");
  spec.mutable_scaling()->set_topology_required(true);
  const JobId job = SubmitJob(spec);
  Run(job);
  Fail(job, 0);
  Fail(job, 1);
  const JobId other = SubmitJob(Urgent());
  Pass(absl::Seconds(2), {a_});
  Run(other);  // it has half of their room
  Registration second = Node(b_, 1);
  (*second.node.mutable_labels())["rack"] = "r2";
  Join(second);
  EXPECT_TRUE(Slot(job, 0).waits() && Slot(job, 1).waits());
  EXPECT_THAT(state_->ReasonOf(Job(job)), HasSubstr("ranks 0 to 1 wait: "));
  Say(a_, Exited(other, a_, 0));
  EXPECT_EQ(Slot(job, 0).node, a_);
  EXPECT_EQ(Slot(job, 1).node, a_);
}

// The first alone would go to the smallest node that holds it.
TEST_F(RestartPolicyTest, SlotsThatAllWaitGoWhereAllOfThemFit) {
  Join(a_, 3);
  JobSpec spec = OneByOne(3, v1::RESTART_POLICY_ONE);
  spec.mutable_scaling()->set_placement_strategy(
      v1::PLACEMENT_STRATEGY_STRICT_PACK);
  const JobId job = SubmitJob(spec);
  Run(job);
  Fail(job, 1, 0);
  const NodeId large = NodeId::New(random_);
  Join(b_, 1);
  Join(large, 2);
  Pass(absl::Seconds(11), {b_, large});
  EXPECT_EQ(Slot(job, 0).node, large);
  EXPECT_TRUE(Slot(job, 1).succeeded());
  EXPECT_EQ(Slot(job, 2).node, large);
}

// What is complete keeps nobody where it was.
TEST_F(RestartPolicyTest, WhatIsCompleteKeepsNobodyOnItsNode) {
  Join(a_, 2);
  JobSpec spec = OneByOne(2, v1::RESTART_POLICY_ONE);
  spec.mutable_run()->set_retry_delay_us(1'000'000);
  spec.mutable_scaling()->set_placement_strategy(
      v1::PLACEMENT_STRATEGY_STRICT_PACK);
  const JobId job = SubmitJob(spec);
  Run(job);
  Fail(job, 0);
  const JobId other = SubmitJob(Urgent());
  Pass(absl::Seconds(2), {a_});
  Run(other);  // it has the slot's room
  Drain(a_, {});
  Join(b_, 1);
  EXPECT_TRUE(Slot(job, 0).waits()) << "slot 1 runs on the other node";
  Fail(job, 1, 0);
  EXPECT_EQ(Slot(job, 0).node, b_);
}

TEST_F(RestartPolicyTest, ASlotStandsBeforeNewJobsOfItsPriority) {
  Join(a_, 1);
  const JobId job = RunWithBackOff();
  const JobId next = SubmitJob(Urgent());
  Fail(job, 0);
  EXPECT_EQ(StateOf(next), v1::JOB_STATE_PENDING) << "the slot keeps its room";
  const JobId later = SubmitJob(Spec(1, 1));
  Pass(absl::Seconds(1.2), {a_});
  EXPECT_EQ(StateOf(next), v1::JOB_STATE_STARTING);
  EXPECT_THAT(state_->ReasonOf(Job(job)), HasSubstr("rank 0 waits: "));
  Say(a_, Exited(next, a_, 0));
  EXPECT_FALSE(Slot(job, 0).waits());
  EXPECT_EQ(StateOf(later), v1::JOB_STATE_PENDING);
}

TEST_F(RestartPolicyTest, AStopEndsAlsoWhatWaits) {
  Join(a_, 1);
  const JobId job = RunWithBackOff();
  Fail(job, 0);
  COHORT_EXPECT_OK(StopJob(job));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STOPPED);
  Pass(absl::Seconds(3), {a_});
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STOPPED);
}

// The attempt's rows: one for a slot that changed, none once it has ended.
TEST_F(RestartPolicyTest, OneDeathWritesAConstantNumberOfRows) {
  Join(a_, 50);
  Join(b_, 50);
  std::vector<size_t> rows;
  for (const int workers : {2, 40}) {
    const JobId job = RunOne(workers);
    Fail(job, 1);
    rows.push_back(rows_);
    COHORT_EXPECT_OK(StopJob(job));
    for (const Place& place : std::vector<Place>(Attempt(job).places)) {
      Say(place.node, EndedBy(At(job, Stage::kRunning), v1::END_CAUSE_EXITED));
    }
    EXPECT_EQ(StateOf(job), v1::JOB_STATE_STOPPED);
  }
  EXPECT_EQ(rows[0], rows[1]);
  EXPECT_THAT(*MemoryStore(disk_).LoadAll(Table::kProcesses), IsEmpty());
}

// ---- many on one node ----

TEST_F(RestartPolicyTest, ANodeHasMoreRanksThanAnArenaWhereThereIsNone) {
  Join(a_, 100);
  const JobId gang = SubmitJob(Spec(100, 1));
  EXPECT_EQ(StateOf(gang), v1::JOB_STATE_PENDING);
  COHORT_ASSERT_OK(StopJob(gang));
  const JobId job = RunOne(100, v1::RESTART_POLICY_NONE);
  EXPECT_THAT(Attempt(job).places, SizeIs(1));
  EXPECT_EQ(Slot(job, 99).local_rank, 99);
}

TEST_F(RestartPolicyTest, AKeeperIsGivenNoMoreThanItRuns) {
  Join(a_, kProcessesPerNodeMax + 10);
  const JobId job = RunOne(kProcessesPerNodeMax);
  COHORT_ASSERT_OK(Resize(job, kProcessesPerNodeMax + 2));
  EXPECT_TRUE(Slot(job, kProcessesPerNodeMax).waits());
  Fail(job, 5);
  EXPECT_FALSE(Slot(job, 5).waits()) << "in its own stead";
  EXPECT_EQ(Slot(job, 5).local_rank, 5);
  Join(b_, 2);
  EXPECT_EQ(Slot(job, kProcessesPerNodeMax).node, b_);
  EXPECT_EQ(Slot(job, kProcessesPerNodeMax + 1).local_rank, 1);
}

TEST_F(RestartPolicyTest, GrowingByManyGoesToWhatKeepersHaveLeft) {
  Join(a_, kProcessesPerNodeMax + 10);
  Join(b_, kProcessesPerNodeMax + 10);
  JobSpec spec = OneByOne(2, v1::RESTART_POLICY_ONE);
  spec.mutable_scaling()->set_placement_strategy(v1::PLACEMENT_STRATEGY_SPREAD);
  const JobId job = SubmitJob(spec);
  Run(job);
  ASSERT_NE(Slot(job, 0).node, Slot(job, 1).node);
  COHORT_ASSERT_OK(Resize(job, kProcessesPerNodeMax + 100));
  EXPECT_FALSE(Slot(job, kProcessesPerNodeMax + 99).waits());
}

TEST_F(RestartPolicyTest, NoResizePutsMoreOnOneNodeThanItsKeeperRuns) {
  Join(a_, 10);
  JobSpec spec = OneByOne(1, v1::RESTART_POLICY_ONE);
  spec.mutable_scaling()->set_placement_strategy(
      v1::PLACEMENT_STRATEGY_STRICT_PACK);
  const JobId job = SubmitJob(spec);
  Run(job);
  EXPECT_THAT(Resize(job, kProcessesPerNodeMax + 1),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("at most 1024 of a job ever are")));
  EXPECT_EQ(Job(job).row.num_workers(), 1);
}

// ---- resize ----

TEST_F(RestartPolicyTest, GrowsWholeOrWaits) {
  Join(a_, 2);
  const JobId job = RunOne(1);
  const uint64_t first = Slot(job, 0).incarnation;
  COHORT_ASSERT_OK(Resize(job, 3));
  ASSERT_THAT(Attempt(job).processes, SizeIs(3));
  EXPECT_TRUE(Slot(job, 1).waits());
  EXPECT_TRUE(Slot(job, 2).waits()) << "room for one of two is not enough";
  EXPECT_THAT(state_->ReasonOf(Job(job)), HasSubstr("ranks 1 to 2 wait"));
  Reload();
  Registration again = Node(a_, 2);
  SetPlaces(again.observed,
            {OnlyOn(a_, &Attempt(job), At(job, Stage::kRunning))});
  Join(again);
  EXPECT_TRUE(Slot(job, 1).waits());
  Join(b_, 1);
  EXPECT_FALSE(Slot(job, 1).waits());
  EXPECT_FALSE(Slot(job, 2).waits());
  EXPECT_EQ(Slot(job, 0).incarnation, first);
  EXPECT_EQ(Job(job).row.num_workers(), 3);
}

TEST_F(RestartPolicyTest, ShrinksFromTheTopAndIsCompleteThen) {
  Join(a_, 3);
  const JobId job = RunOne(3);
  Fail(job, 0, 0);
  sent_.clear();
  COHORT_ASSERT_OK(Resize(job, 1));
  ASSERT_THAT(sent_[a_], SizeIs(1));
  int stopped = 0;
  for (const v1::DesiredProcess& each : sent_[a_][0].processes()) {
    stopped += each.goal() == v1::GOAL_STOP;
  }
  EXPECT_EQ(stopped, 2);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_RUNNING);
  Fail(job, 1, 143);
  EXPECT_THAT(Attempt(job).processes, SizeIs(3)) << "2 is still there";
  Fail(job, 2, 143);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(Attempt(job).processes, SizeIs(1));
  EXPECT_EQ(Job(job).row.failures(), 0);
}

TEST_F(RestartPolicyTest, GrowsAgainOnceWhatShrankIsGone) {
  Join(a_, 2);
  const JobId job = RunOne(2);
  const uint64_t old = Slot(job, 1).incarnation;
  COHORT_ASSERT_OK(Resize(job, 1));
  COHORT_ASSERT_OK(Resize(job, 2));
  EXPECT_EQ(Slot(job, 1).incarnation, old) << "PR-1";
  Fail(job, 1, 143);
  ASSERT_THAT(Attempt(job).processes, SizeIs(2));
  EXPECT_GT(Slot(job, 1).incarnation, old);
  EXPECT_FALSE(Slot(job, 1).retired);
}

TEST_F(RestartPolicyTest, ResizesWhatWaitsAndRefusesTheRest) {
  Join(a_, 1);
  const JobId waits = SubmitJob(OneByOne(2, v1::RESTART_POLICY_ONE));
  EXPECT_EQ(StateOf(waits), v1::JOB_STATE_PENDING);
  COHORT_ASSERT_OK(Resize(waits, 1));
  EXPECT_EQ(StateOf(waits), v1::JOB_STATE_STARTING);
  EXPECT_THAT(Resize(waits, 0), StatusIs(absl::StatusCode::kInvalidArgument));
  const JobId gang = SubmitJob(Spec(1, 1));
  EXPECT_THAT(Resize(gang, 2), StatusIs(absl::StatusCode::kFailedPrecondition,
                                        HasSubstr("restart policy is all")));
  COHORT_ASSERT_OK(StopJob(gang));
  EXPECT_THAT(Resize(JobId::New(random_), 2),
              StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace cohort::head
