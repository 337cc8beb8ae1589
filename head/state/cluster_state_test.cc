#include "head/state/cluster_state.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/status_util.h"
#include "common/testing/status_matchers.h"
#include "head/state/job_spec.h"
#include "head/state/testing/cluster_state_fixture.h"
#include "head/testing/job_specs.h"
#include "head/testing/messages.h"

namespace cohort::head {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

TEST_F(ClusterStateTest, TakesAHigherTermAtEachStartAndKeepsItsIds) {
  const ClusterRecord before = state_->cluster();
  EXPECT_EQ(before.term(), 1);
  EXPECT_FALSE(before.cluster_id().empty());
  Reload();
  EXPECT_EQ(state_->cluster().term(), 2);
  EXPECT_EQ(state_->cluster().cluster_id(), before.cluster_id());
  EXPECT_EQ(state_->cluster().generation(), before.generation());
}

TEST_F(ClusterStateTest, RunsAJobFromTheLineToItsEnd) {
  const JobId job = SubmitJob(Spec(2, 1));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_PENDING);
  EXPECT_THAT(state_->ReasonOf(Job(job)), HasSubstr("no node is registered"));

  EXPECT_THAT(GoalsOf(Join(a_, 2)), ElementsAre(v1::GOAL_PREPARE));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
  EXPECT_TRUE(state_->nodes().AvailableOn(a_).empty());

  Say(a_, At(job, Stage::kPrepared));
  EXPECT_THAT(TakeGoals(a_), ElementsAre(v1::GOAL_RUN));
  Say(a_, At(job, Stage::kRunning));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Job(job).started_at(), time_.Wall());
  Say(a_, Exited(job, a_, 0));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(TakeGoals(a_), ElementsAre(v1::GOAL_FORGET));
  EXPECT_EQ(state_->nodes().AvailableOn(a_).Get(kCpu), Amount::FromUnits(2));
  EXPECT_THAT(changed_, testing::Contains(job));
}

TEST_F(ClusterStateTest, TellsEachNodeItsPlaceInTheGang) {
  Join(a_, 1);
  Join(b_, 1);
  const JobId job = SubmitJob(Spec(2, 1));
  std::vector<v1::DesiredPlace> sent = sent_[a_];
  sent.insert(sent.end(), sent_[b_].begin(), sent_[b_].end());
  ASSERT_THAT(sent, SizeIs(2));
  const bool a_first = sent[0].reserves_port();
  const v1::DesiredPlace& first = a_first ? sent[0] : sent[1];
  const v1::DesiredPlace& second = a_first ? sent[1] : sent[0];
  EXPECT_EQ(first.node_rank(), 0);
  EXPECT_EQ(second.node_rank(), 1);
  EXPECT_FALSE(second.reserves_port());
  EXPECT_EQ(second.node_count(), 2);
  EXPECT_EQ(second.world_size(), 2);
  ASSERT_EQ(second.processes_size(), 1);
  EXPECT_EQ(second.processes(0).rank(), 1);
  EXPECT_EQ(second.processes(0).local_rank(), 0);
  EXPECT_THAT(Job(job).spec->launch().command(),
              ElementsAreArray(second.launch().command()));
  EXPECT_EQ(second.number(), 1);
}

// RQ-1, also through a restart.
TEST_F(ClusterStateTest, MakesOneJobOfARepeatedRequest) {
  const auto first = TrySubmitJob(Spec(1, 1), "r");
  COHORT_ASSERT_OK(first);
  EXPECT_THAT(TrySubmitJob(Spec(1, 1), "r"), IsOkAndHolds(*first));
  Reload();
  EXPECT_THAT(TrySubmitJob(Spec(1, 1), "r"), IsOkAndHolds(*first));
  EXPECT_EQ(state_->jobs().size(), 1);
  EXPECT_THAT(TrySubmitJob(Spec(2, 1), "r", "another body"),
              StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST_F(ClusterStateTest, ChangesNothingForARequestItRefuses) {
  JobSpec bad = Spec(1, 1);
  bad.mutable_launch()->clear_command();
  const int appends = disk_.appends();
  EXPECT_THAT(TrySubmitJob(bad, "r"),
              StatusIs(absl::StatusCode::kInvalidArgument));
  JobSpec unpackaged = Spec(1, 1);
  unpackaged.mutable_launch()->set_package_hash(std::string(32, 'h'));
  EXPECT_THAT(TrySubmitJob(unpackaged, "r"),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(disk_.appends(), appends);
  EXPECT_THAT(StopJob(JobId::New(random_)),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(ClusterStateTest, RefusesAJobWhenTooManyWait) {
  limits_.waiting_jobs_max = 2;
  Reload();
  SubmitJob(Spec(1, 1));
  SubmitJob(Spec(1, 1));
  EXPECT_THAT(TrySubmitJob(Spec(1, 1), "third"),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

// PL-1, and a release wakes the line at once.
TEST_F(ClusterStateTest, PlacesWhatFitsInOrderWhenResourcesReturn) {
  Join(a_, 2);
  const JobId running = SubmitJob(Spec(2, 1));
  const JobId huge = SubmitJob(Spec(100, 1));
  const JobId second = SubmitJob(Spec(2, 1));
  const JobId third = SubmitJob(Spec(1, 1));
  EXPECT_EQ(StateOf(second), v1::JOB_STATE_PENDING);
  EXPECT_EQ(StateOf(third), v1::JOB_STATE_PENDING);
  EXPECT_THAT(state_->ReasonOf(Job(huge)), HasSubstr("100"));
  Run(running);
  Say(a_, Exited(running, a_, 0));
  EXPECT_EQ(StateOf(second), v1::JOB_STATE_STARTING);
  EXPECT_EQ(StateOf(third), v1::JOB_STATE_PENDING);
  EXPECT_EQ(StateOf(huge), v1::JOB_STATE_PENDING);
  // Two more CPUs: the small one starts past the one that fits nowhere.
  Join(b_, 2);
  EXPECT_EQ(StateOf(third), v1::JOB_STATE_STARTING);
  EXPECT_EQ(StateOf(huge), v1::JOB_STATE_PENDING);
}

TEST_F(ClusterStateTest, StopsAWaitingJobAtOnce) {
  const JobId job = SubmitJob(Spec(1, 1));
  COHORT_EXPECT_OK(StopJob(job));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STOPPED);
  COHORT_EXPECT_OK(StopJob(job));
  Join(a_, 1);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STOPPED);
}

TEST_F(ClusterStateTest, StopsARunningJobWithGrace) {
  Join(a_, 1);
  const JobId job = SubmitJob(Spec(1, 1));
  Run(job);
  sent_.clear();
  COHORT_EXPECT_OK(StopJob(job));
  ASSERT_THAT(sent_[a_], SizeIs(1));
  EXPECT_EQ(GoalFor(sent_[a_][0]), v1::GOAL_STOP);
  EXPECT_EQ(rpc::FromWire(sent_[a_][0].processes(0).grace()),
            absl::Seconds(10));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STOPPING);
  Say(a_, Exited(job, a_, 0));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STOPPED);
}

TEST_F(ClusterStateTest, StartsAgainAfterAFailureWithinItsBudget) {
  Join(a_, 1);
  Join(b_, 1);
  JobSpec spec = Spec(2, 1);
  spec.mutable_run()->set_max_failures(1);
  const JobId job = SubmitJob(spec);
  Run(job);
  sent_.clear();
  Say(a_, Exited(job, a_, 3));
  // The sibling is ended with the job's grace; the ended part is forgotten.
  EXPECT_THAT(TakeGoals(a_), ElementsAre(v1::GOAL_FORGET));
  ASSERT_THAT(sent_[b_], SizeIs(1));
  EXPECT_EQ(rpc::FromWire(sent_[b_][0].processes(0).grace()), GraceOf(spec));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_RUNNING);
  const AttemptId first = Attempt(job).id;
  Say(b_, Exited(job, b_, 143, /*by_order=*/true));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_PENDING);
  EXPECT_THAT(state_->ReasonOf(Job(job)),
              StartsWith("attempt 2 starts in 1s; attempt 1: rank"));
  Pass(absl::Seconds(1), {a_, b_});
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
  EXPECT_NE(Attempt(job).id, first);
  EXPECT_EQ(Attempt(job).number, 2);
  EXPECT_EQ(Job(job).row.failures(), 1);
}

TEST_F(ClusterStateTest, BacksOffTwiceAsLongAndAnewAfterARestart) {
  Join(a_, 1);
  JobSpec spec = Spec(1, 1);
  spec.mutable_run()->set_max_failures(5);
  spec.mutable_run()->set_retry_delay_us(
      absl::ToInt64Microseconds(absl::Seconds(2)));
  const JobId job = SubmitJob(spec);
  Run(job);
  Say(a_, Exited(job, a_, 3));
  Pass(absl::Milliseconds(1'800), {a_});
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_PENDING);
  Reload();  // the delay is counted from its start again, so it is never
             // shortened
  Join(a_, 1);
  EXPECT_EQ(state_->waiting_count(), 1);
  Pass(absl::Milliseconds(1'800), {a_});
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_PENDING);
  Pass(absl::Milliseconds(400), {a_});
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
  Run(job);
  Say(a_, Exited(job, a_, 3));
  Pass(absl::Milliseconds(3'800), {a_});
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_PENDING);
  Pass(absl::Milliseconds(400), {a_});
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
}

TEST_F(ClusterStateTest, StopsAJobDuringItsBackOff) {
  Join(a_, 1);
  JobSpec spec = Spec(1, 1);
  spec.mutable_run()->set_max_failures(5);
  const JobId job = SubmitJob(spec);
  Run(job);
  Say(a_, Exited(job, a_, 3));
  EXPECT_EQ(state_->waiting_count(), 1);
  COHORT_EXPECT_OK(StopJob(job));
  EXPECT_EQ(state_->waiting_count(), 0);
  Pass(absl::Seconds(2), {a_});
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STOPPED);
  EXPECT_EQ(Job(job).row.failure_class(), v1::FAILURE_CLASS_USER);
}

TEST_F(ClusterStateTest, StartsAgainAtOnceAfterWhatWasNotCharged) {
  Join(a_, 1);
  Join(b_, 1);
  const JobId job = SubmitJob(Spec(1, 1));
  Run(job);
  const NodeId first = Attempt(job).places[0].node;
  Pass(absl::Seconds(11), {first == a_ ? b_ : a_});
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
  EXPECT_EQ(Attempt(job).number, 2);
  EXPECT_EQ(Job(job).row.failure_class(), v1::FAILURE_CLASS_INFRA);
  // It still tells of the node once that is gone from the attempt.
  EXPECT_THAT(Job(job).row.causes()[0], HasSubstr("was silent for 10s"));
}

// PL-3: nothing of a node is offered before it registered in this term.
TEST_F(ClusterStateTest, OffersANodeOnlyAfterItRegisteredInThisTerm) {
  Join(a_, 4);
  Reload();
  const JobId job = SubmitJob(Spec(1, 1));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_PENDING);
  EXPECT_THAT(state_->ReasonOf(Job(job)), Not(IsEmpty()));
  Join(a_, 4);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
}

TEST_F(ClusterStateTest, RefusesANodeWhoseTextsCannotBeShownOrReached) {
  std::vector<Registration> bad(6, Node(a_, 1));
  bad[0].node.set_name("a\nb");
  SetLabels(bad[1].node, {{"rack", "\x1b[31m"}});
  SetLabels(bad[2].node, {{"\xff", "7"}});
  bad[3].node.set_host("a b");
  SetLabels(bad[4].node, {{"host", "x"}});  // a level of its own
  SetLabels(bad[5].node, {{" ", "x"}});
  for (const Registration& registration : bad) {
    Transition transition;
    EXPECT_THAT(state_->RegisterNode(registration, transition),
                StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_TRUE(transition.empty());
  }
}

TEST_F(ClusterStateTest, DoesNotOfferANodeWhoseStreamIsGone) {
  Join(a_, 4);
  state_->WithdrawNode(a_, incarnations_[a_]);
  const JobId job = SubmitJob(Spec(1, 1));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_PENDING);
  Join(a_, 4);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
}

TEST_F(ClusterStateTest, PlacesNothingOnANodeThatLeavesWithItsRanks) {
  Join(a_, 1);
  const JobId job = SubmitJob(Spec(1, 1));
  Run(job);
  state_->WithdrawNode(a_, incarnations_[a_]);
  EXPECT_EQ(state_->nodes().Find(a_)->state, v1::NODE_STATE_ALIVE);
  v1::ObservedPlace ended = Exited(job, a_, 1, /*by_order=*/true);
  ended = EndedBy(ended, v1::END_CAUSE_DAEMON_SHUTDOWN);
  TakeGoals(a_);
  Say(a_, ended);
  EXPECT_THAT(TakeGoals(a_), ElementsAre(v1::GOAL_FORGET));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_PENDING);
  // Its stream broke and it came again before it went.
  Registration again = Node(a_, 1);
  again.leaving = true;
  Join(again);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_PENDING);
  // The next daemon.
  Join(a_, 1);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
  EXPECT_EQ(Job(job).row.infra_restarts(), 0);
  EXPECT_EQ(Job(job).row.failures(), 0);
}

// P1: the head dies and comes back, the ranks go on.
TEST_F(ClusterStateTest, GoesOnWithARunningJobAfterARestart) {
  Join(a_, 1);
  const JobId job = SubmitJob(Spec(1, 1));
  Run(job);
  Reload();
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_RUNNING);
  Registration again = Node(a_, 1);
  SetPlaces(again.observed, {At(job, Stage::kRunning)});
  EXPECT_THAT(GoalsOf(Join(again)), ElementsAre(v1::GOAL_RUN));
  EXPECT_TRUE(state_->nodes().AvailableOn(a_).empty());
  Say(a_, Exited(job, a_, 0));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Job(job).row.attempts(), 1);
}

TEST_F(ClusterStateTest, TakesAnEndThatHappenedWhileTheHeadWasAway) {
  Join(a_, 1);
  const JobId job = SubmitJob(Spec(1, 1));
  Run(job);
  Reload();
  Registration again = Node(a_, 1);
  SetPlaces(again.observed, {Exited(job, a_, 0)});
  EXPECT_THAT(GoalsOf(Join(again)), ElementsAre(v1::GOAL_FORGET));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_SUCCEEDED);
}

// RC-2: a PREPARE that never arrived is simply sent again.
TEST_F(ClusterStateTest, SendsAgainWhatANodeDoesNotHaveYet) {
  Join(a_, 1);
  const JobId job = SubmitJob(Spec(1, 1));
  EXPECT_THAT(GoalsOf(Join(a_, 1)), ElementsAre(v1::GOAL_PREPARE));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
  EXPECT_EQ(Job(job).row.infra_restarts(), 0);
}

TEST_F(ClusterStateTest, StartsAgainWhatANodeHasLost) {
  Join(a_, 1);
  const JobId job = SubmitJob(Spec(1, 1));
  Run(job);
  // A reboot: the node comes back and knows nothing.
  EXPECT_THAT(GoalsOf(Join(a_, 1)),
              testing::UnorderedElementsAre(v1::GOAL_FORGET, v1::GOAL_PREPARE));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
  EXPECT_EQ(Job(job).row.infra_restarts(), 1);
  EXPECT_EQ(Job(job).row.failures(), 0);
  EXPECT_EQ(Attempt(job).number, 2);
}

// RC-1: an attempt that the head does not know is to be forgotten, and what it
// may hold stays unavailable until it is gone.
TEST_F(ClusterStateTest, WithholdsANodeFromWhichAnUnknownAttemptMustGo) {
  Registration registration = Node(a_, 4);
  v1::ObservedPlace orphan =
      PlaceOf(AttemptId::New(random_), JobId::New(random_), Stage::kRunning);
  SetPlaces(registration.observed, {orphan});
  EXPECT_THAT(GoalsOf(Join(registration)), ElementsAre(v1::GOAL_FORGET));
  const JobId job = SubmitJob(Spec(1, 1));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_PENDING);
  orphan = Moved(orphan, Stage::kEnded);
  Say(a_, orphan);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
}

TEST_F(ClusterStateTest, DeclaresASilentNodeDeadAndStartsItsJobElsewhere) {
  Join(a_, 1);
  const JobId job = SubmitJob(Spec(1, 1));
  Run(job);
  Join(b_, 1);
  Pass(absl::Seconds(9.9), {b_});
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_RUNNING);
  Pass(absl::Seconds(1), {b_});
  EXPECT_EQ(state_->nodes().Find(a_)->state, v1::NODE_STATE_DEAD);
  EXPECT_THAT(disconnected_, ElementsAre(a_));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
  EXPECT_EQ(Attempt(job).places[0].node, b_);
  EXPECT_EQ(Job(job).row.infra_restarts(), 1);
  EXPECT_EQ(Job(job).row.failures(), 0);
}

TEST_F(ClusterStateTest, WithholdsWhatAReturningDeadNodeStillRuns) {
  Join(a_, 2);
  const JobId job = SubmitJob(Spec(1, 1));
  Run(job);
  v1::ObservedPlace old = At(job, Stage::kRunning);
  Pass(absl::Seconds(11));
  ASSERT_EQ(StateOf(job), v1::JOB_STATE_PENDING);  // no other node
  Registration back = Node(a_, 2);
  SetPlaces(back.observed, {old});
  const RegisteredNode registered = Join(back);
  // The new attempt goes beside the orphan, never on top of it (PL-2).
  EXPECT_THAT(GoalsOf(registered),
              testing::UnorderedElementsAre(v1::GOAL_FORGET, v1::GOAL_PREPARE));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
  EXPECT_TRUE(state_->nodes().AvailableOn(a_).empty());
  old = Moved(old, Stage::kEnded);
  Say(a_, old);
  EXPECT_EQ(state_->nodes().AvailableOn(a_).Get(kCpu), Amount::FromUnits(1));
}

// LS-1.
TEST_F(ClusterStateTest, DeclaresNobodyDeadAfterAPauseOfTheHead) {
  Join(a_, 1);
  Pass(absl::Seconds(1), {a_});
  time_.AdvanceBy(absl::Seconds(30));
  Pass(absl::Seconds(5));
  EXPECT_EQ(state_->nodes().Find(a_)->state, v1::NODE_STATE_ALIVE);
}

TEST_F(ClusterStateTest, IgnoresWhatAnEarlierRegistrationSays) {
  Join(a_, 1);
  const JobId job = SubmitJob(Spec(1, 1));
  Run(job);
  const uint64_t old = incarnations_[a_];
  Registration again = Node(a_, 1);
  SetPlaces(again.observed, {At(job, Stage::kRunning)});
  Join(again);
  Transition transition;
  v1::Observed late;
  *late.add_places() = Exited(job, a_, 1);
  COHORT_EXPECT_OK(state_->Observe(a_, old, late, transition));
  EXPECT_TRUE(transition.empty());
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_RUNNING);
}

// CK-1.
TEST_F(ClusterStateTest, RestoresANewAttemptFromTheLastCommittedCheckpoint) {
  Join(a_, 1);
  JobSpec spec = Spec(1, 1);
  spec.mutable_run()->set_max_failures(1);
  spec.mutable_run()->set_num_to_keep(1);
  const JobId job = SubmitJob(spec);
  Run(job);
  sent_.clear();
  v1::ObservedPlace committing = At(job, Stage::kRunning);
  committing = WithCheckpoint(committing, "/s/attempt-1.1/step-5", 5, 1);
  Say(a_, committing);
  EXPECT_THAT(acknowledged_, ElementsAre("/s/attempt-1.1/step-5"));
  committing.mutable_checkpoints(0)->set_path("/s/attempt-1.1/step-9");
  committing.mutable_checkpoints(0)->set_step(9);
  Say(a_, committing);
  ASSERT_THAT(sent_[a_], SizeIs(1));
  EXPECT_THAT(sent_[a_][0].retired_checkpoints(),
              ElementsAre("/s/attempt-1.1/step-5"));
  v1::ObservedPlace removed = At(job, Stage::kRunning);
  removed.add_removed_checkpoints("/s/attempt-1.1/step-5");
  Say(a_, removed);

  sent_.clear();
  Say(a_, Exited(job, a_, 1));
  Pass(absl::Seconds(1), {a_});
  ASSERT_THAT(sent_[a_], SizeIs(2));
  for (const v1::DesiredPlace& sent : sent_[a_]) {
    if (sent.goal() != v1::GOAL_PREPARE) continue;
    EXPECT_EQ(sent.restore().path(), "/s/attempt-1.1/step-9");
    EXPECT_EQ(sent.epoch(), 2);
  }
}

TEST_F(ClusterStateTest, KeepsAnEndedPartUntilRetiredDirectoriesAreGone) {
  Join(a_, 1);
  JobSpec spec = Spec(1, 1);
  spec.mutable_run()->set_num_to_keep(1);
  const JobId job = SubmitJob(spec);
  Run(job);
  v1::ObservedPlace last = Exited(job, a_, 0);
  last = WithCheckpoint(last, "/s/attempt-1.1/step-1", 1, 1);
  last = WithCheckpoint(last, "/s/attempt-1.1/step-2", 2, 1);
  sent_.clear();
  Say(a_, last);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(TakeGoals(a_), ElementsAre(v1::GOAL_PREPARE));
  last.add_removed_checkpoints("/s/attempt-1.1/step-1");
  Say(a_, last);
  EXPECT_THAT(TakeGoals(a_), ElementsAre(v1::GOAL_FORGET));
  EXPECT_THAT(Job(job).row.retired(), IsEmpty());
}

TEST_F(ClusterStateTest, PutsExchangesTogetherAgainAfterARestart) {
  Join(a_, 1);
  Join(b_, 1);
  const JobId job = SubmitJob(Spec(2, 1));
  Run(job);
  const bool a_first = IsOnNode(Attempt(job), 0, a_);
  v1::ObservedPlace of_a = At(job, Stage::kRunning);
  of_a = WithBlob(of_a, "address", a_first ? 0 : 1, "blob-a");
  v1::ObservedPlace of_b = At(job, Stage::kRunning);
  of_b = WithBlob(of_b, "address", a_first ? 1 : 0, "blob-b");
  sent_.clear();
  Say(a_, of_a);
  EXPECT_THAT(sent_[a_], IsEmpty());
  Reload();
  Registration node_b = Node(b_, 1);
  *node_b.observed.add_places() = OnlyOn(b_, &Attempt(job), of_b);
  Join(node_b);
  Registration node_a = Node(a_, 1);
  *node_a.observed.add_places() = OnlyOn(a_, &Attempt(job), of_a);
  const RegisteredNode registered = Join(node_a);
  ASSERT_THAT(registered.desired, SizeIs(1));
  ASSERT_THAT(registered.exchanges, SizeIs(1));
  EXPECT_THAT(exchanged_[b_],
              ElementsAre(testing::Property(&v1::Exchange::tag, "address")));
  EXPECT_THAT(exchanged_[a_], IsEmpty()) << "it comes with the answer";
  // Nothing of it is told again.
  of_b = WithBlob(At(job, Stage::kRunning), "more", a_first ? 1 : 0, "c");
  of_a = WithBlob(At(job, Stage::kRunning), "more", a_first ? 0 : 1, "d");
  exchanged_.clear();
  sent_.clear();
  Say(b_, of_b);
  Say(a_, of_a);
  for (const NodeId& node : {a_, b_}) {
    ASSERT_THAT(exchanged_[node], SizeIs(1));
    EXPECT_EQ(exchanged_[node][0].tag(), "more");
    EXPECT_THAT(sent_[node], IsEmpty());
  }
}

// A node that was away says how its attempts ended, then their last words.
TEST_F(ClusterStateTest, LastWordsThatComeAfterTheStateAreRecorded) {
  Join(a_, 1);
  JobSpec spec = Spec(1, 1);
  spec.mutable_run()->set_max_failures(1);
  spec.mutable_run()->set_retry_delay_us(0);
  const JobId job = SubmitJob(spec);
  Run(job);
  const v1::ObservedPlace failed = Exited(job, a_, 3);
  const v1::ObservedPlace words = WithTail(failed, "why");
  Registration back = Node(a_, 1);
  *back.observed.add_places() = failed;
  Join(back);
  Pass(absl::Seconds(1), {a_});
  ASSERT_EQ(Job(job).row.attempts(), 2) << "the next one has begun";
  EXPECT_THAT(words_, IsEmpty());
  Say(a_, words);
  EXPECT_THAT(words_, ElementsAre(AttemptOf(failed)));
  EXPECT_EQ(Job(job).row.stderr_tail(), "why");
  // Its own failure is the last from now on.
  Run(job);
  Say(a_, Exited(job, a_, 4));
  Say(a_, words);
  EXPECT_EQ(Job(job).row.stderr_tail(), "");
  EXPECT_THAT(words_, SizeIs(2)) << "nobody needs them, and it may forget them";
}

// Only the head sees who gave no address.
TEST_F(ClusterStateTest, APreflightThatFailsNamesWhoWasNotHeardOf) {
  Join(a_, 1);
  Join(b_, 1);
  JobSpec spec = Spec(2, 1);
  spec.mutable_run()->set_preflight(true);
  const JobId job = SubmitJob(spec);
  Run(job);
  const int of_a = *SlotsOn(Attempt(job), a_).begin();
  v1::ObservedPlace told = At(job, Stage::kRunning);
  told = WithBlob(told, "preflight/address", of_a, "blob");
  told = WithPreflight(told, v1::PREFLIGHT_VERDICT_FAILED, "nobody came");
  Say(a_, told);
  ASSERT_TRUE(Job(job).row.has_preflight());
  EXPECT_EQ(Job(job).row.preflight().report().summary(),
            absl::StrCat("nobody came; nothing was heard of rank ", 1 - of_a));
  EXPECT_TRUE(Job(job).row.preflight().has_at());
  Reload();
  EXPECT_EQ(Attempt(job).cause, v1::ATTEMPT_CAUSE_PREFLIGHT_FAILED);
  EXPECT_EQ(Job(job).row.preflight().attempt(), 1);
}

TEST_F(ClusterStateTest, StoresMetricsAtMostOnceASecondAndTheLastOnes) {
  Join(a_, 1);
  const JobId job = SubmitJob(Spec(1, 1));
  Run(job);
  v1::ObservedPlace report = At(job, Stage::kRunning);
  const int before = disk_.appends();
  for (uint64_t i = 1; i <= 20; ++i) {
    report = WithMetrics(report, 0, i, absl::StrCat("{", i, "}"));
    Say(a_, report);
    Pass(absl::Milliseconds(200), {a_});
  }
  EXPECT_EQ(Job(job).row.metrics_json(), "{20}");
  EXPECT_LE(disk_.appends() - before, 5);
  report = WithMetrics(report, 0, 21, "{21}");
  Say(a_, report);
  Say(a_, Exited(job, a_, 0));
  Reload();
  EXPECT_EQ(Job(job).row.metrics_json(), "{21}");
  EXPECT_EQ(Job(job).row.metrics_count(), 21);
}

TEST_F(ClusterStateTest, PinsThePackageOfAJobUntilItEnds) {
  const std::string hash(32, 'h');
  Transition transition;
  state_->CompletePackage(hash, 100, transition);
  Submit(std::move(transition));
  JobSpec spec = Spec(1, 1);
  spec.mutable_launch()->set_package_hash(hash);
  const JobId job = SubmitJob(spec);
  Reload();
  EXPECT_EQ(state_->packages().PinsOf(hash), 1);
  COHORT_EXPECT_OK(StopJob(job));
  EXPECT_EQ(state_->packages().PinsOf(hash), 0);
  time_.AdvanceBy(absl::Hours(1));
  Transition trim;
  EXPECT_THAT(state_->TrimPackages({}, trim), ElementsAre(hash));
  Submit(std::move(trim));
}

TEST_F(ClusterStateTest, TakesNoJobWhosePackageIsLostUntilItComesAgain) {
  const std::string hash(32, 'h');
  Transition complete;
  state_->CompletePackage(hash, 100, complete);
  Submit(std::move(complete));
  Transition lost;
  state_->LosePackage(hash, "the head has no file", lost);
  EXPECT_FALSE(lost.empty());
  Submit(std::move(lost));
  Transition known;
  state_->LosePackage(hash, "the head has no file", known);
  state_->LosePackage(std::string(32, 'x'), "nobody knows it", known);
  EXPECT_TRUE(known.empty()) << "told once, of what is ours";
  JobSpec spec = Spec(1, 1);
  spec.mutable_launch()->set_package_hash(hash);
  Transition refused;
  EXPECT_THAT(
      state_->SubmitJob({.principal = "p", .request_id = "r", .body_hash = "b"},
                        "default", spec, refused),
      StatusIs(absl::StatusCode::kFailedPrecondition));
  Transition again;
  state_->CompletePackage(hash, 100, again);
  SubmitJob(spec);
}

TEST_F(ClusterStateTest, BoundsItsHistory) {
  limits_.history.jobs.count_max = 3;
  limits_.history.events.count_max = 10;
  limits_.history.attempts_per_job_max = 2;
  Reload();
  Join(a_, 1);
  JobSpec spec = Spec(1, 1);
  spec.mutable_run()->set_max_failures(-1);
  spec.mutable_run()->set_retry_delay_us(
      absl::ToInt64Microseconds(absl::ZeroDuration()));
  const JobId restless = SubmitJob(spec);
  for (int i = 0; i < 5; ++i) {
    Run(restless);
    Say(a_, Exited(restless, a_, 1));
  }
  EXPECT_THAT(state_->attempts().AllOf(restless), SizeIs(2));
  for (int i = 0; i < 6; ++i) COHORT_EXPECT_OK(StopJob(SubmitJob(Spec(9, 9))));
  Pass(absl::Seconds(1), {a_});
  EXPECT_EQ(state_->jobs().CountOf(v1::JOB_STATE_STOPPED), 3);
  MemoryStore reader(disk_);
  EXPECT_THAT(LoadRecords<EventRecord>(reader), IsOkAndHolds(SizeIs(10)));
}

TEST_F(ClusterStateTest, TellsWhichEventLedToWhich) {
  Join(a_, 1);
  const JobId job = SubmitJob(Spec(1, 1));
  Run(job);
  Pass(absl::Seconds(11));
  MemoryStore reader(disk_);
  const auto events = LoadRecords<EventRecord>(reader);
  COHORT_ASSERT_OK(events);
  std::map<uint64_t, const EventRecord*> by_number;
  for (const EventRecord& event : *events) by_number[event.number()] = &event;
  // From the job's last move back to the node's death.
  uint64_t number = Job(job).row.origin().cause();
  std::vector<std::string> chain;
  while (number != 0) {
    chain.push_back(by_number.at(number)->kind());
    number = by_number.at(number)->cause();
  }
  EXPECT_THAT(chain, ElementsAre("job_moved", "attempt_moved", "node_dead"));
}

TEST_F(ClusterStateTest, EventsOfAnAttemptNameItsNodes) {
  Join(a_, 1);
  Join(b_, 1);
  const JobId gang = SubmitJob(Spec(2, 1));
  Run(gang);
  MemoryStore reader(disk_);
  const auto events = LoadRecords<EventRecord>(reader);
  COHORT_ASSERT_OK(events);
  int of_gang = 0;
  for (const EventRecord& event : *events) {
    if (IdOf<JobId>(event.job_id()) != gang || event.attempt_id().empty())
      continue;
    ++of_gang;
    EXPECT_THAT(event.node_ids(), SizeIs(2))
        << event.kind() << " " << event.text();
    EXPECT_NE(event.node_ids(0), event.node_ids(1));
    EXPECT_TRUE(event.node_id().empty());
  }
  EXPECT_GE(of_gang, 2);
}

TEST_F(ClusterStateTest, WhatThisBuildDoesNotKnowGetsIntoNoRow) {
  Join(a_, 1);
  const JobId job = SubmitJob(Spec(1, 1));
  Run(job);
  v1::ObservedPlace place = Exited(job, a_, 0);
  v1::ExitStatus& exit = *place.mutable_processes(0)->mutable_exit();
  exit.GetReflection()->MutableUnknownFields(&exit)->AddVarint(99, 1);
  Say(a_, place);
  Reload();
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(ClusterStateTest, EventsOfAnAttemptThatWasLostNameItsNode) {
  Join(a_, 1);
  const JobId job = SubmitJob(Spec(1, 1));
  Run(job);
  Pass(absl::Seconds(11));
  MemoryStore reader(disk_);
  const auto events = LoadRecords<EventRecord>(reader);
  COHORT_ASSERT_OK(events);
  std::vector<std::string> kinds;
  for (const EventRecord& event : *events) {
    if (event.job_id() != job.bytes() || event.attempt_id().empty()) continue;
    kinds.push_back(event.kind());
    EXPECT_THAT(event.node_ids(),
                ElementsAre(Attempt(job).places[0].node.bytes()))
        << event.text();
    EXPECT_TRUE(event.node_id().empty()) << "the node's own events have that";
  }
  EXPECT_THAT(kinds, Contains("attempt_moved"));
  EXPECT_THAT(kinds, Contains("job_moved"));
}

TEST_F(ClusterStateTest, GivesEachJobOfADeadNodeTheNodesDeathAsItsCause) {
  Join(a_, 2);
  const JobId one = SubmitJob(Spec(1, 1));
  const JobId two = SubmitJob(Spec(1, 1));
  Run(one);
  Run(two);
  Pass(absl::Seconds(11));
  Join(b_, 2);
  MemoryStore reader(disk_);
  const auto events = LoadRecords<EventRecord>(reader);
  COHORT_ASSERT_OK(events);
  uint64_t dead = 0;
  uint64_t joined = 0;
  for (const EventRecord& event : *events) {
    if (event.kind() == "node_dead") dead = event.number();
    if (event.kind() == "node_registered") joined = event.number();
  }
  for (const JobId& job : {one, two}) {
    std::vector<uint64_t> causes;
    for (const EventRecord& event : *events) {
      if (IdOf<JobId>(event.job_id()) != job || event.number() < dead) continue;
      causes.push_back(event.cause());
      EXPECT_EQ(event.principal(), "head");
      EXPECT_FALSE(event.attempt_id().empty()) << event.text();
    }
    // Its attempt ended, it waits, and is placed where a node has joined.
    ASSERT_THAT(causes, SizeIs(3));
    EXPECT_EQ(causes[0], dead);
    EXPECT_GT(causes[1], dead);
    EXPECT_EQ(causes[2], joined);
  }
  EXPECT_EQ(events->back().text(),
            absl::StrCat("STARTING on ", Node(b_, 2).node.name()));
}

TEST_F(ClusterStateTest, NamesTheEndOfADependencyAsTheCauseOfWhatItFails) {
  const JobId first = SubmitJob(Spec(1, 1));
  JobSpec spec = Spec(1, 1);
  AddAfter(spec, first, v1::DEPENDENCY_KIND_OK);
  const JobId second = SubmitJob(spec);
  COHORT_ASSERT_OK(StopJob(first));
  ASSERT_EQ(StateOf(second), v1::JOB_STATE_FAILED);
  MemoryStore reader(disk_);
  const auto events = LoadRecords<EventRecord>(reader);
  COHORT_ASSERT_OK(events);
  EXPECT_EQ(IdOf<JobId>(events->back().job_id()), second);
  EXPECT_EQ(events->back().cause(), Job(first).row.origin().cause());
  EXPECT_EQ(events->back().principal(), "head");
}

}  // namespace
}  // namespace cohort::head
