// Attempts that began after the backup: only their nodes know of them.

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/status_util.h"
#include "common/testing/status_matchers.h"
#include "head/state/orphans.h"
#include "head/state/testing/orphan_fixture.h"
#include "head/testing/job_specs.h"

namespace cohort::head {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using RowlessOrphansTest = OrphansTest;

TEST_F(RowlessOrphansTest, AJobThatBeganAfterTheBackupIsNotBegunAgain) {
  const JobId job = NewJob();
  Backup();
  Join(kNode);
  const v1::ObservedPlace running = Run(job, kNode);
  Restore();
  EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_PENDING);
  EXPECT_EQ(state_->WaitingByReason().at("restored"), 1);
  EXPECT_THAT(Join(kNode, {running}).desired, IsEmpty());
  Settle();
  EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_PENDING);
  EXPECT_EQ(state_->WaitingByReason().at("orphan"), 1);
  EXPECT_EQ(state_->WaitingByReason().at("restored"), 0);
  EXPECT_STREQ(State(AttemptOf(running)), "RUNNING");
  // It holds what it has, and no more.
  EXPECT_EQ(FreeCpus(kNode), Amount::FromUnits(1));

  // It ends by itself, and its job goes on.
  EXPECT_THAT(TakeGoals(kNode), IsEmpty());
  Say(kNode, Ended(running, 0));
  EXPECT_STREQ(State(AttemptOf(running)), "none");
  EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_STARTING);
  EXPECT_EQ(state_->WaitingByReason().at("orphan"), 0);
}

TEST_F(RowlessOrphansTest, AnOrphanThatNoRowKnowsCannotBeAdopted) {
  const JobId job = NewJob();
  Backup();
  Join(kNode);
  const v1::ObservedPlace running = Run(job, kNode);
  Restore();
  Join(kNode, {running});
  const absl::StatusOr<JobId> adopted = Adopt(AttemptOf(running));
  EXPECT_THAT(
      adopted,
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("no record of it"),
                     HasSubstr("cohort end " + AttemptOf(running).ToHex()))));
  EXPECT_EQ(GetReason(adopted.status()), "cannot_adopt");
  EXPECT_STREQ(State(AttemptOf(running)), "RUNNING");
  EXPECT_THAT(TakeGoals(kNode), IsEmpty());
}

// What ended before its node was heard of is over, and holds nothing back.
TEST_F(RowlessOrphansTest, WhatHadEndedIsNoOrphan) {
  const JobId job = NewJob();
  Backup();
  Join(kNode);
  const v1::ObservedPlace running = Run(job, kNode);
  Restore();
  const RegisteredNode joined = Join(kNode, {Ended(running, 0)});
  ASSERT_THAT(joined.desired, SizeIs(1));
  EXPECT_EQ(GoalFor(joined.desired[0]), v1::GOAL_FORGET);
  EXPECT_STREQ(State(AttemptOf(running)), "none");
  Settle();
  EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_STARTING);
}

// What rows hold that ended after the backup, and what began on it then.
TEST_F(RowlessOrphansTest, AnOrphanBesideAnEndedAttemptHoldsItsOwnOnly) {
  Join(kNode, {}, 3);
  const JobId first = NewJob();
  const v1::ObservedPlace one = Run(first, kNode);
  const JobId second = NewJob();
  const v1::ObservedPlace two = Run(second, kNode);
  Backup();
  Say(kNode, Ended(one, 0));
  Say(kNode, Ended(two, 0));
  const v1::ObservedPlace later = Run(NewJob(), kNode);
  const v1::ObservedPlace last = Run(NewJob(), kNode);
  Restore();
  Join(kNode, {later, last}, 3);
  Settle();
  EXPECT_EQ(FreeCpus(kNode), Amount());
  COHORT_EXPECT_OK(End(AttemptOf(one)));
  COHORT_EXPECT_OK(End(AttemptOf(two)));
  EXPECT_EQ(Job(first).row.state(), v1::JOB_STATE_STARTING);
  EXPECT_EQ(Job(second).row.state(), v1::JOB_STATE_PENDING);
}

// PL-2; seed 8902911 of the simulation: of two daemons with one identity the
// second has an orphan, and what the first was to begin has no room beside it.
TEST_F(RowlessOrphansTest, WhatHasNotBegunGivesWay) {
  const JobId job = NewJob(2);
  Backup();
  Join(kNode);
  const v1::ObservedPlace running = Run(job, kNode);
  Restore();
  Join(kNode);
  Settle();
  ASSERT_EQ(Job(job).row.state(), v1::JOB_STATE_STARTING);
  for (const v1::DesiredPlace& desired : Join(kNode, {running}).desired) {
    EXPECT_EQ(GoalFor(desired), v1::GOAL_FORGET)
        << *AttemptId::FromBytes(desired.attempt_id());
  }
  EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_PENDING);
  COHORT_EXPECT_OK(End(AttemptOf(running)));
  Say(kNode, Ended(running, 0));
  EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_STARTING);
}

TEST_F(RowlessOrphansTest, WithoutWordOfWhatItHoldsAllOfTheNodeIsHeld) {
  const JobId job = NewJob();
  Backup();
  Join(kNode);
  v1::ObservedPlace running = Run(job, kNode);
  running.clear_resources_per_process();
  Restore();
  Join(kNode, {running});
  EXPECT_EQ(FreeCpus(kNode), Amount());
}

// Deltas do not say what a process holds.
TEST_F(RowlessOrphansTest, WhatItHoldsIsWhatItsNodeSaidLast) {
  const JobId job = NewJob();
  Backup();
  Join(kNode);
  v1::ObservedPlace running = Run(job, kNode);
  Restore();
  Join(kNode, {running});
  running.clear_resources_per_process();
  Say(kNode, running);
  EXPECT_EQ(FreeCpus(kNode), Amount::FromUnits(1));
}

TEST_F(RowlessOrphansTest, OneOfAJobThatTheBackupLacksHoldsUntilItEnds) {
  Backup();
  Join(kNode);
  const JobId job = NewJob();
  const v1::ObservedPlace running = Run(job, kNode);
  Restore();
  Join(kNode, {running});
  Settle();
  EXPECT_STREQ(State(AttemptOf(running)), "RUNNING");
  EXPECT_EQ(FreeCpus(kNode), Amount::FromUnits(1));
  EXPECT_THAT(Adopt(AttemptOf(running)),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(state_->jobs().Find(job), nullptr);
  Say(kNode, Ended(running, 0));
  EXPECT_STREQ(State(AttemptOf(running)), "none");
  EXPECT_EQ(FreeCpus(kNode), Amount::FromUnits(2));
}

TEST_F(RowlessOrphansTest, AnEndedOrphanIsForgottenAlsoAfterAStart) {
  Backup();
  Join(kNode);
  const JobId job = NewJob();
  const v1::ObservedPlace running = Run(job, kNode);
  Restore();
  Join(kNode, {running});
  EXPECT_THAT(End(AttemptOf(running)), IsOkAndHolds(job));
  EXPECT_THAT(TakeGoals(kNode), ElementsAre(v1::GOAL_FORGET));
  EXPECT_STREQ(State(AttemptOf(running)), "ENDING");
  EXPECT_EQ(FreeCpus(kNode), Amount::FromUnits(1)) << "it still has it";
  // The order never arrived.
  Load();
  const RegisteredNode again = Join(kNode, {running});
  ASSERT_THAT(again.desired, SizeIs(1));
  EXPECT_EQ(GoalFor(again.desired[0]), v1::GOAL_FORGET);
  EXPECT_STREQ(State(AttemptOf(running)), "ENDING");
  EXPECT_EQ(FreeCpus(kNode), Amount::FromUnits(1));
  Join(kNode);
  EXPECT_STREQ(State(AttemptOf(running)), "none");
  EXPECT_EQ(FreeCpus(kNode), Amount::FromUnits(2));
}

TEST_F(RowlessOrphansTest, AWaitingJobGoesOnOnceItsOrphanIsEnded) {
  const JobId job = NewJob();
  Backup();
  Join(kNode);
  const v1::ObservedPlace running = Run(job, kNode);
  Restore();
  Join(kNode, {running});
  Settle();
  COHORT_EXPECT_OK(End(AttemptOf(running)));
  EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_PENDING) << "it still runs";
  Say(kNode, Ended(running, 137));
  EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_STARTING);
  EXPECT_NE(Last(job).id, AttemptOf(running));
}

// OR-2: only its node knows of it, and may be the last to come.
TEST_F(RowlessOrphansTest, AnOrphanIsWaitedForAtEachStart) {
  const JobId job = NewJob();
  Backup();
  Join(kNode);
  const v1::ObservedPlace running = Run(job, kNode);
  Restore();
  Join(kOtherNode);
  Join(kNode, {running});
  Settle();
  EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_PENDING);
  for (int start = 0; start < 3; ++start) {
    Load();
    Join(kOtherNode);
    EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_PENDING);
    Join(kNode, {running});
    Settle();
    EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_PENDING);
  }
  COHORT_EXPECT_OK(End(AttemptOf(running)));
  Load();
  EXPECT_TRUE(state_->cluster().settling()) << "it may run still";
  Join(kOtherNode);
  Join(kNode);
  Settle();
  EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_STARTING);
  Load();
  EXPECT_FALSE(state_->cluster().settling()) << "nobody is waited for any more";
}

TEST_F(RowlessOrphansTest, AnOrphanThatIsNowhereAnyMoreHoldsNothingBack) {
  const JobId job = NewJob();
  Backup();
  Join(kNode);
  const v1::ObservedPlace running = Run(job, kNode);
  Restore();
  Join(kNode, {running});
  Settle();
  Join(kNode);
  EXPECT_STREQ(State(AttemptOf(running)), "none");
  EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_STARTING);
}

TEST_F(RowlessOrphansTest, AJobWaitsForAllOfItsOrphans) {
  Join(kNode);
  const JobId job = NewJob();
  const v1::ObservedPlace first = Run(job, kNode);
  Backup();
  // The first attempt is lost, a second one begins.
  Say(kNode, EndedBy(first, v1::END_CAUSE_KEEPER_LOST));
  ASSERT_EQ(Job(job).row.attempts(), 2);
  const v1::ObservedPlace second = Run(job, kNode);
  Restore();
  Join(kNode, {second});
  Settle();
  EXPECT_THAT(Adopt(AttemptOf(second)),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  COHORT_EXPECT_OK(End(AttemptOf(first)));
  EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_PENDING);
  COHORT_EXPECT_OK(End(AttemptOf(second)));
  EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_PENDING);
  Say(kNode, Ended(second, 137));
  EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_STARTING);
}

// EL-2: what runs as an orphan runs.
TEST_F(RowlessOrphansTest, AnOrphanKeepsThePlaceOfItsElement) {
  Join(kNode);
  JobSpec spec = OneWorker();
  SetCommand(spec, {"train"});
  SetResource(spec, kCpu, Amount::FromUnits(1));
  spec.set_array("0-3%1");
  Transition transition;
  const JobId array = *state_->SubmitJob(Key(), "default", spec, transition);
  Submit(std::move(transition));
  v1::ObservedPlace zero = Run(array.Element(0), kNode);
  Backup();
  Say(kNode, Ended(zero, 0));
  const v1::ObservedPlace one = Run(array.Element(1), kNode);
  Restore();
  Join(kNode, {Ended(zero, 0), one});
  Settle();
  const auto started = [&] {
    const auto& all = state_->attempts().all();
    return std::count_if(all.begin(), all.end(), [](const auto& each) {
      return each.second.state != v1::ATTEMPT_STATE_ENDED;
    });
  };
  COHORT_EXPECT_OK(Adopt(AttemptOf(zero)));
  EXPECT_EQ(Job(array.Element(0)).row.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(started(), 0) << "element 1 runs";
  // Nor does a hold give its place away.
  Transition hold;
  COHORT_EXPECT_OK(state_->HoldJob(Key(), array.Element(1), hold));
  Submit(std::move(hold));
  EXPECT_EQ(started(), 0);
  Transition release;
  COHORT_EXPECT_OK(state_->ReleaseJob(Key(), array.Element(1), release));
  Submit(std::move(release));
  Say(kNode, Ended(one, 0));
  EXPECT_EQ(started(), 1);
  EXPECT_EQ(Job(array.Element(1)).row.state(), v1::JOB_STATE_STARTING);
}

// EL-2: two orphans of one array, whose places are one.
TEST_F(RowlessOrphansTest, EndedOrphansDoNotStartAgainBesideEachOther) {
  Join(kNode, {}, 4);
  JobSpec spec = OneWorker();
  SetCommand(spec, {"train"});
  SetResource(spec, kCpu, Amount::FromUnits(1));
  spec.set_array("0-3%2");
  Transition transition;
  const JobId array = *state_->SubmitJob(Key(), "default", spec, transition);
  Submit(std::move(transition));
  Backup();
  const v1::ObservedPlace zero = Run(array.Element(0), kNode);
  const v1::ObservedPlace one = Run(array.Element(1), kNode);
  v1::ObservedPlace lie = one;
  lie.set_attempt_id(std::string(AttemptId::kBytes, 'l'));
  lie.set_job_id(array.Element(2).bytes());
  Restore();
  Join(kNode, {zero, one, lie}, 4);
  Settle();
  for (const AttemptId& id :
       {AttemptOf(zero), AttemptOf(one), AttemptOf(lie)}) {
    COHORT_EXPECT_OK(End(id));
  }
  Join(kNode, {}, 4);
  int started = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    started += Job(array.Element(i)).row.state() == v1::JOB_STATE_STARTING;
  }
  EXPECT_EQ(started, 2);
}

// DP-1, OR-1: what its job waited for fails it, and the orphan runs on.
TEST_F(RowlessOrphansTest, AJobMayFailWhileItsOrphanRuns) {
  Join(kNode);
  const JobId first = NewJob();
  const v1::ObservedPlace before = Run(first, kNode);
  JobSpec spec = OneWorker();
  SetCommand(spec, {"train"});
  SetResource(spec, kCpu, Amount::FromUnits(1));
  AddAfter(spec, first, v1::DEPENDENCY_KIND_OK);
  Transition transition;
  const JobId second = *state_->SubmitJob(Key(), "default", spec, transition);
  Submit(std::move(transition));
  Backup();
  Say(kNode, Ended(before, 0));
  const v1::ObservedPlace running = Run(second, kNode);
  Restore();
  Join(kNode, {running, before});
  Settle();
  COHORT_EXPECT_OK(Adopt(AttemptOf(before)));
  sent_.clear();
  Say(kNode, Ended(before, 1));
  EXPECT_EQ(Job(first).row.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(Job(second).row.state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(Job(second).row.reason(), HasSubstr("it was to start after"));
  EXPECT_STREQ(State(AttemptOf(running)), "RUNNING");
  for (const v1::DesiredPlace& sent : sent_[kNode]) {
    EXPECT_NE(sent.attempt_id(), running.attempt_id());
  }
  Say(kNode, Ended(running, 0));
  EXPECT_STREQ(State(AttemptOf(running)), "none");
}

TEST_F(RowlessOrphansTest, WhatAPersonSaysIsTheCauseOfWhatFollows) {
  const JobId job = NewJob();
  Backup();
  Join(kNode);
  const v1::ObservedPlace running = Run(job, kNode);
  Restore();
  Join(kNode, {running});
  Settle();
  COHORT_ASSERT_OK(End(AttemptOf(running)));
  Say(kNode, Ended(running, 0));

  MemoryStore store(*disk_);
  std::map<std::string, const EventRecord*> last;  // by what
  const auto events = LoadRecords<EventRecord>(store);
  COHORT_ASSERT_OK(events);
  for (const EventRecord& event : *events) {
    last[event.kind() == "job_moved"
             ? event.text().substr(0, event.text().find(' '))
             : event.kind()] = &event;
  }
  EXPECT_EQ(last.at("STARTING")->cause(), last.at("lease_ended")->number());
  EXPECT_EQ(last.at("lease_ended")->cause(),
            last.at("attempt_ended")->number());
}

// DR-2.
TEST_F(RowlessOrphansTest, AnAdoptedAttemptObeysTheDeadlineOfItsDrainedNode) {
  Join(kNode);
  const JobId job = NewJob();
  const v1::ObservedPlace running = Run(job, kNode);
  Backup();
  Restore();
  Join(kNode, {running});
  Transition transition;
  COHORT_EXPECT_OK(state_->DrainNode(
      Key(), kNode.ToHex(), {.reason = "", .deadline = absl::Seconds(1)},
      transition));
  Submit(std::move(transition));
  Settle();
  EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_RUNNING);
  sent_.clear();
  COHORT_EXPECT_OK(Adopt(AttemptOf(running)));
  EXPECT_EQ(TakeGoals(kNode).back(), v1::GOAL_STOP);
  EXPECT_EQ(Last(job).cause, v1::ATTEMPT_CAUSE_DRAINED);
}

// It ends because a person said so, not because of the drain.
TEST_F(RowlessOrphansTest, AnEndedAttemptIsNotOneOfItsDrainedNode) {
  Join(kNode);
  const JobId job = NewJob();
  const v1::ObservedPlace running = Run(job, kNode);
  Backup();
  Restore();
  Join(kNode, {running});
  Transition transition;
  COHORT_EXPECT_OK(state_->DrainNode(
      Key(), kNode.ToHex(), {.reason = "", .deadline = absl::Seconds(1)},
      transition));
  Submit(std::move(transition));
  Settle();
  COHORT_EXPECT_OK(End(AttemptOf(running)));
  EXPECT_EQ(Last(job).cause, v1::ATTEMPT_CAUSE_ORPHAN);
}

}  // namespace
}  // namespace cohort::head
