#include "head/state/orphans.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/status_util.h"
#include "common/testing/status_matchers.h"
#include "head/state/testing/orphan_fixture.h"

namespace cohort::head {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// ---- attempts that the backup has ----

// OR-1, OR-2.
TEST_F(OrphansTest, ARestoreEndsNothingAndStartsNothingTwice) {
  Join(kNode);
  const JobId job = NewJob();
  const v1::ObservedPlace running = Run(job, kNode);
  Backup();
  Restore();
  EXPECT_STREQ(State(AttemptOf(running)), "AWAY");
  EXPECT_THAT(Join(kNode, {running}).desired, IsEmpty());
  Settle();
  EXPECT_THAT(TakeGoals(kNode), IsEmpty());
  EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Job(job).row.attempts(), 1);
  EXPECT_STREQ(State(AttemptOf(running)), "RUNNING");
  EXPECT_EQ(FreeCpus(kNode), Amount::FromUnits(1));
  EXPECT_THAT(state_->ReasonOf(Job(job)),
              HasSubstr("cohort adopt " + AttemptOf(running).ToHex()));
  // Nor does a start of the head, or another registration.
  Load();
  EXPECT_THAT(Join(kNode, {running}).desired, IsEmpty());
  EXPECT_STREQ(State(AttemptOf(running)), "RUNNING");
}

// Its node says them once, however long a person takes.
TEST_F(OrphansTest, WhatAnAbsentDriverHadIsForAPerson) {
  Join(kNode);
  Transition opened;
  const auto driver =
      state_->OpenDriver("cluster", std::nullopt, v1::OpenDriver(), opened);
  COHORT_ASSERT_OK(driver);
  Submit(std::move(opened));
  const JobId actor = NewJob(1, v1::RESTART_POLICY_ONE, *driver);
  const v1::ObservedPlace running = Run(actor, kNode);
  Backup();
  Restore();
  Join(kNode, {running});
  Settle();
  for (int i = 0; i < 300; ++i) Tick();
  EXPECT_TRUE(absl::IsNotFound(state_->ResumeDriver(*driver)));
  EXPECT_EQ(Job(actor).row.state(), v1::JOB_STATE_RUNNING);
  EXPECT_THAT(TakeGoals(kNode), IsEmpty());
  // Then it goes, and its driver with it.
  COHORT_EXPECT_OK(End(AttemptOf(running)));
  ASSERT_TRUE(state_->HasToGoOn());
  Transition turn;
  state_->GoOn(turn);
  Submit(std::move(turn));
  Say(kNode, Ended(running, 1));
  EXPECT_EQ(Job(actor).row.state(), v1::JOB_STATE_STOPPED);
  EXPECT_EQ(state_->drivers().Find(*driver), nullptr);
}

TEST_F(OrphansTest, LastWordsOfAnOrphanAreThereWhenItIsAdopted) {
  Join(kNode);
  const JobId job = NewJob();
  const v1::ObservedPlace running = Run(job, kNode);
  Backup();
  Restore();
  Join(kNode, {running});
  v1::ObservedPlace words = Ended(running, 3);
  words.mutable_processes(0)->set_state(v1::PROCESS_STATE_EXITED);
  words.mutable_processes(0)->set_stderr_tail("why");
  Say(kNode, words);
  Say(kNode, Ended(running, 3));
  EXPECT_THAT(words_, IsEmpty()) << "a restart of the head would lose them";
  EXPECT_THAT(Adopt(AttemptOf(running)), IsOkAndHolds(job));
  EXPECT_EQ(Job(job).row.stderr_tail(), "why");
  EXPECT_THAT(words_, ElementsAre(AttemptOf(running)));
}

TEST_F(OrphansTest, AnAdoptedAttemptIsOneAsAnyOther) {
  Join(kNode);
  const JobId job = NewJob();
  v1::ObservedPlace running = Run(job, kNode);
  Backup();
  Restore();
  Join(kNode, {running});
  EXPECT_THAT(Adopt(AttemptOf(running)), IsOkAndHolds(job));
  EXPECT_THAT(TakeGoals(kNode), ElementsAre(v1::GOAL_RUN));
  EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_RUNNING);
  EXPECT_STREQ(State(AttemptOf(running)), "none");
  EXPECT_EQ(state_->ReasonOf(Job(job)), "");
  EXPECT_THAT(Adopt(AttemptOf(running)),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("is RUNNING and no orphan")));
  Say(kNode, Ended(running, 0));
  EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_SUCCEEDED);
}

// CK-1: it goes on in the epoch, and so in the directory, that it began with.
TEST_F(OrphansTest, CheckpointsOfAnAdoptedAttemptAreItsOwn) {
  Join(kNode);
  const JobId job = NewJob();
  v1::ObservedPlace running = Run(job, kNode);
  Backup();
  Restore();
  Join(kNode, {running});
  COHORT_EXPECT_OK(Adopt(AttemptOf(running)));
  v1::Checkpoint& checkpoint = *running.add_checkpoints();
  checkpoint.set_path("/results/attempt-1.1/step-3");
  checkpoint.set_step(3);
  checkpoint.set_epoch(1);
  Say(kNode, running);
  EXPECT_THAT(Job(job).row.checkpoints(), SizeIs(1));
}

TEST_F(OrphansTest, AdoptionAppliesWhatWasSaidMeanwhile) {
  Join(kNode);
  const JobId job = NewJob();
  const v1::ObservedPlace running = Run(job, kNode);
  Backup();
  Restore();
  Join(kNode, {Ended(running, 0)});
  EXPECT_STREQ(State(AttemptOf(running)), "ENDED");
  EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_RUNNING);
  COHORT_EXPECT_OK(Adopt(AttemptOf(running)));
  EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(FreeCpus(kNode), Amount::FromUnits(2));
}

// What an adoption makes of what was said meanwhile is its doing.
TEST_F(OrphansTest, WhatAnAdoptionMovesIsByWhoAdopted) {
  Join(kNode);
  const JobId job = NewJob();
  const v1::ObservedPlace running = Run(job, kNode);
  Backup();
  Restore();
  Join(kNode, {Ended(running, 0)});
  COHORT_EXPECT_OK(Adopt(AttemptOf(running)));
  MemoryStore reader(*disk_);
  const auto events = LoadRecords<EventRecord>(reader);
  COHORT_ASSERT_OK(events);
  std::string by;
  for (const EventRecord& event : *events) {
    if (event.kind() == "attempt_adopted") by = event.principal();
    if (by.empty() || IdOf<JobId>(event.job_id()) != job) continue;
    EXPECT_EQ(event.principal(), by) << event.kind() << " " << event.text();
    EXPECT_NE(event.principal(), "head");
  }
  EXPECT_NE(by, "");
}

TEST_F(OrphansTest, AnEndedAttemptMakesRoomForTheNextUncharged) {
  Join(kNode);
  const JobId job = NewJob();
  const v1::ObservedPlace running = Run(job, kNode);
  Backup();
  Restore();
  Join(kNode, {running});
  Settle();
  EXPECT_THAT(End(AttemptOf(running)), IsOkAndHolds(job));
  ASSERT_THAT(sent_[kNode], SizeIs(1));
  EXPECT_EQ(GoalFor(sent_[kNode][0]), v1::GOAL_STOP);
  EXPECT_EQ(rpc::FromWire(sent_[kNode][0].processes(0).grace()),
            absl::Seconds(10));
  Say(kNode, Ended(running, 143));
  EXPECT_EQ(Job(job).row.failures(), 0);
  EXPECT_EQ(Job(job).row.infra_restarts(), 0);
  EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_STARTING);
  EXPECT_EQ(Job(job).row.attempts(), 2);
  // No directory of the time after the backup gets a second owner.
  EXPECT_GT(Last(job).epoch, 1'000'000);
}

// Found by the simulation: another job was given its GPU.
TEST_F(OrphansTest, ASlotThatWasFilledElsewhereAfterTheBackupHoldsWhatItHas) {
  Join(kNode);
  Join(kOtherNode);
  const JobId job = NewJob(1, v1::RESTART_POLICY_ONE);
  const NodeId first = Last(job).places[0].node;
  const NodeId second = first == kNode ? kOtherNode : kNode;
  v1::ObservedPlace moved = Run(job, first);
  moved.mutable_processes(0)->set_incarnation(2);
  Backup();
  Restore();
  Join(first);
  Join(second, {moved});
  Settle();
  EXPECT_EQ(FreeCpus(second), Amount::FromUnits(1));
  EXPECT_THAT(Adopt(AttemptOf(moved)), IsOkAndHolds(job));
  EXPECT_EQ(Last(job).processes[0].node, second);
  EXPECT_EQ(FreeCpus(first), Amount::FromUnits(2));
  EXPECT_EQ(FreeCpus(second), Amount::FromUnits(1));
  Say(second, Ended(moved, 0));
  EXPECT_EQ(FreeCpus(second), Amount::FromUnits(2));
}

// PL-2; found by the simulation: what it held is another job's by then.
TEST_F(OrphansTest, ASlotThatEndedElsewhereAfterTheBackupHoldsNothingThere) {
  Join(kNode);
  Join(kOtherNode);
  const JobId job = NewJob(1, v1::RESTART_POLICY_ONE);
  const NodeId first = Last(job).places[0].node;
  const NodeId second = first == kNode ? kOtherNode : kNode;
  v1::ObservedPlace moved = Ended(Run(job, first), 1);
  moved.mutable_processes(0)->set_incarnation(2);
  Backup();
  Restore();
  Join(first);
  Join(second, {moved});
  Settle();
  const JobId other = NewJob(2);
  ASSERT_EQ(Last(other).places[0].node, second);
  EXPECT_THAT(Adopt(AttemptOf(moved)), IsOkAndHolds(job));
  EXPECT_THAT(state_->nodes().HeldOn(second),
              ElementsAre(Pair(Last(other).id, _)));
  EXPECT_GT(Last(job).processes[0].incarnation, 2);
  EXPECT_EQ(Last(job).processes[0].node, first);
}

TEST_F(OrphansTest, WhatANodeDoesNotKnowAnyMoreWaitsForAPersonToo) {
  Join(kNode);
  const JobId job = NewJob();
  const AttemptId attempt = AttemptOf(Run(job, kNode));
  Backup();
  Restore();
  Join(kNode);
  Settle();
  EXPECT_STREQ(State(attempt), "MISSING");
  EXPECT_EQ(Job(job).row.attempts(), 1);
  EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_RUNNING);
  COHORT_EXPECT_OK(Adopt(attempt));
  EXPECT_EQ(Job(job).row.infra_restarts(), 1);
  EXPECT_EQ(Job(job).row.attempts(), 2);
}

// Its node forgot it once it had ended.
TEST_F(OrphansTest, WhatMayHaveRunAlreadyDoesNotBeginAgain) {
  Join(kNode);
  const JobId job = NewJob();
  const AttemptId attempt = Last(job).id;
  Backup();
  Restore();
  EXPECT_THAT(Adopt(attempt), StatusIs(absl::StatusCode::kFailedPrecondition,
                                       HasSubstr("it may be over")));
  Join(kNode);
  Settle();
  EXPECT_THAT(Adopt(attempt), StatusIs(absl::StatusCode::kFailedPrecondition,
                                       HasSubstr("it may be over")));
  EXPECT_THAT(TakeGoals(kNode), IsEmpty());
  COHORT_ASSERT_OK(End(attempt));
  // Its node does not know it: the next one begins, the old one is forgotten.
  EXPECT_EQ(state_->attempts().Find(attempt)->state, v1::ATTEMPT_STATE_ENDED);
  EXPECT_EQ(Job(job).row.attempts(), 2);
  EXPECT_THAT(TakeGoals(kNode),
              UnorderedElementsAre(v1::GOAL_PREPARE, v1::GOAL_FORGET));
}

TEST_F(OrphansTest, WhatItsNodeStillPreparesGoesOnOnceAdopted) {
  Join(kNode);
  const JobId job = NewJob();
  const v1::ObservedPlace prepared = At(job, Stage::kPrepared);
  Backup();
  Restore();
  Join(kNode, {prepared});
  COHORT_ASSERT_OK(Adopt(AttemptOf(prepared)));
  EXPECT_THAT(TakeGoals(kNode), ElementsAre(v1::GOAL_RUN));
}

TEST_F(OrphansTest, ADeadNodeChangesNothingBeforeAPersonSpeaks) {
  Join(kNode);
  const JobId job = NewJob();
  const AttemptId attempt = AttemptOf(Run(job, kNode));
  Backup();
  Restore();
  Join(kOtherNode);
  silent_ = {kNode};
  Settle();
  EXPECT_EQ(state_->nodes().Find(kNode)->state, v1::NODE_STATE_DEAD);
  EXPECT_EQ(Job(job).row.attempts(), 1);
  EXPECT_STREQ(State(attempt), "AWAY");
  COHORT_EXPECT_OK(End(attempt));
  EXPECT_EQ(Job(job).row.attempts(), 2);
  EXPECT_EQ(Last(job).places[0].node, kOtherNode);
}

TEST_F(OrphansTest, WhoStopsTheJobSpeaksForItsAttempt) {
  Join(kNode);
  const JobId job = NewJob();
  const v1::ObservedPlace running = Run(job, kNode);
  Backup();
  Restore();
  Join(kNode, {running});
  Transition transition;
  COHORT_EXPECT_OK(state_->StopJob(Key(), job, transition));
  Submit(std::move(transition));
  EXPECT_EQ(TakeGoals(kNode).back(), v1::GOAL_STOP);
  Say(kNode, Ended(running, 143));
  EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_STOPPED);
}

// RQ-1.
TEST_F(OrphansTest, ARepeatedRequestGetsTheFirstAnswer) {
  Join(kNode);
  const JobId job = NewJob();
  const v1::ObservedPlace running = Run(job, kNode);
  Backup();
  Restore();
  Join(kNode, {running});
  const RequestKey key = Key();
  for (int i = 0; i < 2; ++i) {
    Transition transition;
    EXPECT_THAT(state_->AdoptAttempt(key, AttemptOf(running), transition),
                IsOkAndHolds(job));
    Submit(std::move(transition));
    if (i == 0) Load();
  }
}

TEST_F(OrphansTest, OthersAreNotFound) {
  const auto refused = Adopt(IdOf<AttemptId>('x'));
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kNotFound,
                                HasSubstr("cohort status")));
  EXPECT_THAT(End(IdOf<AttemptId>('x')), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(GetReason(refused.status()), "unknown_attempt");
}

// ---- before the nodes were heard of ----

TEST_F(OrphansTest, NothingStartsBeforeTheNodesWereHeardOf) {
  Join(kNode);
  Backup();
  Restore();
  Join(kOtherNode);
  const JobId job = NewJob();
  EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_PENDING);
  EXPECT_THAT(state_->ReasonOf(Job(job)), HasSubstr("was restored"));
  silent_ = {kNode};
  Settle();
  EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_STARTING);
}

TEST_F(OrphansTest, AStartBeginsTheWaitAnew) {
  Backup();
  Restore();
  Join(kNode);
  time_.AdvanceBy(limits_.node_timeout * 0.9);
  Load();
  Join(kNode);
  time_.AdvanceBy(limits_.node_timeout * 0.9);
  Transition transition;
  state_->Tick(transition);
  EXPECT_TRUE(state_->cluster().settling());
}

}  // namespace
}  // namespace cohort::head
