// Attempts that began after the backup: only their nodes know of them.

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "head/explain/explanation.h"
#include "head/state/testing/unclaimed_fixture.h"
#include "head/state/unclaimed.h"

namespace cohort::head {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using StrangersTest = UnclaimedTest;

TEST_F(StrangersTest, AJobThatBeganAfterTheBackupIsNotBegunAgain) {
  const JobId job = NewJob();
  Backup();
  Join(kNode);
  const ObservedAttempt running = Run(job, kNode);
  Restore();
  EXPECT_EQ(Job(job).state, JobState::kPending);
  EXPECT_THAT(Join(kNode, {running}).desired, IsEmpty());
  Settle();
  EXPECT_EQ(Job(job).state, JobState::kPending);
  EXPECT_STREQ(State(running.attempt), "RUNNING");
  // It holds what it has, and no more.
  EXPECT_EQ(FreeCpus(kNode), Amount::FromUnits(1));

  EXPECT_THAT(Adopt(running.attempt), IsOkAndHolds(job));
  EXPECT_EQ(Job(job).state, JobState::kRunning);
  EXPECT_EQ(Job(job).attempts, 1);
  EXPECT_EQ(FreeCpus(kNode), Amount::FromUnits(1));
  EXPECT_THAT(TakeGoals(kNode), ElementsAre(Goal::kRun));
  Load();
  Join(kNode, {running});
  EXPECT_EQ(Job(job).state, JobState::kRunning);
  Say(kNode, Ended(running, 0));
  EXPECT_EQ(Job(job).state, JobState::kSucceeded);
}

// What rows hold that ended after the backup, and what began on it then.
TEST_F(StrangersTest, AStrangerBesideAnEndedAttemptHoldsItsOwnOnly) {
  Join(kNode, {}, 3);
  const JobId first = NewJob();
  const ObservedAttempt one = Run(first, kNode);
  const JobId second = NewJob();
  const ObservedAttempt two = Run(second, kNode);
  Backup();
  Say(kNode, Ended(one, 0));
  Say(kNode, Ended(two, 0));
  const ObservedAttempt later = Run(NewJob(), kNode);
  const ObservedAttempt last = Run(NewJob(), kNode);
  Restore();
  Join(kNode, {later, last}, 3);
  Settle();
  EXPECT_EQ(FreeCpus(kNode), Amount());
  COHORT_EXPECT_OK(End(one.attempt));
  COHORT_EXPECT_OK(End(two.attempt));
  EXPECT_EQ(Job(first).state, JobState::kStarting);
  EXPECT_EQ(Job(second).state, JobState::kPending);
  COHORT_EXPECT_OK(Adopt(later.attempt));
}

// There is no job to list, but somebody has to say what becomes of it.
TEST_F(StrangersTest, ExplainNamesItAmongThoseThatHoldWhatAnotherLacks) {
  Backup();
  Join(kNode);
  const JobId job = NewJob();
  const ObservedAttempt running = Run(job, kNode);
  Restore();
  Join(kNode, {running});
  Settle();
  const JobId other = NewJob(/*cpus=*/2);
  const Explanation waits = Explain(*state_, Job(other), /*read_only=*/false);
  ASSERT_TRUE(waits.diagnosis.has_value());
  EXPECT_THAT(waits.diagnosis->holders,
              ElementsAre(Holder{kCpu, job, Amount::FromUnits(1), 1}));
}

// PL-2; seed 8902911 of the simulation: of two daemons with one identity the
// second has a stranger, and what the first was to begin has no room beside it.
TEST_F(StrangersTest, WhatHasNotBegunGivesWay) {
  const JobId job = NewJob(2);
  Backup();
  Join(kNode);
  const ObservedAttempt running = Run(job, kNode);
  Restore();
  Join(kNode);
  Settle();
  ASSERT_EQ(Job(job).state, JobState::kStarting);
  for (const DesiredAttempt& desired : Join(kNode, {running}).desired) {
    EXPECT_EQ(desired.goal, Goal::kForget) << desired.attempt;
  }
  EXPECT_EQ(Job(job).state, JobState::kPending);
  COHORT_EXPECT_OK(End(running.attempt));
  Say(kNode, Ended(running, 0));
  EXPECT_EQ(Job(job).state, JobState::kStarting);
}

TEST_F(StrangersTest, WithoutItsSpecAllOfTheNodeIsHeld) {
  const JobId job = NewJob();
  Backup();
  Join(kNode);
  ObservedAttempt running = Run(job, kNode);
  const auto wanted = std::exchange(running.wanted, std::nullopt);
  Restore();
  Join(kNode, {running});
  EXPECT_EQ(FreeCpus(kNode), Amount());
  EXPECT_THAT(Adopt(running.attempt),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  running.wanted = wanted;
  Say(kNode, running);
  EXPECT_EQ(FreeCpus(kNode), Amount::FromUnits(1));
}

TEST_F(StrangersTest, AJobThatTheBackupLacksIsMadeAgain) {
  Backup();
  Join(kNode);
  const JobId job = NewJob();
  const ObservedAttempt running = Run(job, kNode);
  Restore();
  Join(kNode, {running});
  EXPECT_THAT(Adopt(running.attempt), IsOkAndHolds(job));
  EXPECT_EQ(Job(job).state, JobState::kRunning);
  EXPECT_THAT(Job(job).spec->command, ElementsAre("train"));
  EXPECT_EQ(Job(job).attempts, 1);
}

TEST_F(StrangersTest, AnEndedStrangerIsForgottenAlsoAfterAStart) {
  Backup();
  Join(kNode);
  const JobId job = NewJob();
  const ObservedAttempt running = Run(job, kNode);
  Restore();
  Join(kNode, {running});
  EXPECT_THAT(End(running.attempt), IsOkAndHolds(job));
  EXPECT_THAT(TakeGoals(kNode), ElementsAre(Goal::kForget));
  EXPECT_STREQ(State(running.attempt), "ENDING");
  EXPECT_EQ(FreeCpus(kNode), Amount::FromUnits(1)) << "it still has it";
  // The order never arrived.
  Load();
  const RegisteredNode again = Join(kNode, {running});
  ASSERT_THAT(again.desired, SizeIs(1));
  EXPECT_EQ(again.desired[0].goal, Goal::kForget);
  EXPECT_STREQ(State(running.attempt), "ENDING");
  EXPECT_EQ(FreeCpus(kNode), Amount::FromUnits(1));
  Join(kNode);
  EXPECT_STREQ(State(running.attempt), "none");
  EXPECT_EQ(FreeCpus(kNode), Amount::FromUnits(2));
}

TEST_F(StrangersTest, AWaitingJobGoesOnOnceItsStrangerIsEnded) {
  const JobId job = NewJob();
  Backup();
  Join(kNode);
  const ObservedAttempt running = Run(job, kNode);
  Restore();
  Join(kNode, {running});
  Settle();
  COHORT_EXPECT_OK(End(running.attempt));
  EXPECT_EQ(Job(job).state, JobState::kPending) << "it still runs";
  Say(kNode, Ended(running, 137));
  EXPECT_EQ(Job(job).state, JobState::kStarting);
  EXPECT_NE(Last(job).id, running.attempt);
}

// UN-2: only its node knows of it, and may be the last to come.
TEST_F(StrangersTest, AStrangerIsWaitedForAtEachStart) {
  const JobId job = NewJob();
  Backup();
  Join(kNode);
  const ObservedAttempt running = Run(job, kNode);
  Restore();
  Join(kOther);
  Join(kNode, {running});
  Settle();
  EXPECT_EQ(Job(job).state, JobState::kPending);
  for (int start = 0; start < 3; ++start) {
    Load();
    Join(kOther);
    EXPECT_EQ(Job(job).state, JobState::kPending);
    Join(kNode, {running});
    Settle();
    EXPECT_EQ(Job(job).state, JobState::kPending);
  }
  COHORT_EXPECT_OK(End(running.attempt));
  Load();
  EXPECT_TRUE(state_->cluster().settling) << "it may run still";
  Join(kOther);
  Join(kNode);
  Settle();
  EXPECT_EQ(Job(job).state, JobState::kStarting);
  Load();
  EXPECT_FALSE(state_->cluster().settling) << "nobody is waited for any more";
}

TEST_F(StrangersTest, AStrangerThatIsNowhereAnyMoreHoldsNothingBack) {
  const JobId job = NewJob();
  Backup();
  Join(kNode);
  const ObservedAttempt running = Run(job, kNode);
  Restore();
  Join(kNode, {running});
  Settle();
  Join(kNode);
  EXPECT_STREQ(State(running.attempt), "none");
  EXPECT_EQ(Job(job).state, JobState::kStarting);
}

TEST_F(StrangersTest, WhatCannotBeAdoptedSaysWhy) {
  Join(kNode);
  const JobId job = NewJob();
  ObservedAttempt first = Run(job, kNode);
  Backup();
  // The first attempt is lost, a second one begins.
  ObservedAttempt lost = first;
  lost.phase = ObservedPhase::kEnded;
  lost.end = ObservedEnd::kKeeperLost;
  Say(kNode, lost);
  ASSERT_EQ(Job(job).attempts, 2);
  ObservedAttempt second = Run(job, kNode);
  Restore();
  ObservedAttempt half = second;
  half.attempt = IdOf<AttemptId>('h');
  half.wanted->attempt = half.attempt;
  half.wanted->node_count = 2;
  Join(kNode, {second, half});
  EXPECT_THAT(Adopt(half.attempt),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("on 2 nodes, of which 1 are here")));
  EXPECT_THAT(Adopt(second.attempt),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("its job is RUNNING here"),
                             HasSubstr("cohort end"))));
  // Once the first is spoken for, the second can be.
  COHORT_EXPECT_OK(End(half.attempt));
  COHORT_EXPECT_OK(End(first.attempt));
  EXPECT_EQ(Job(job).state, JobState::kPending);
  COHORT_EXPECT_OK(Adopt(second.attempt));
  EXPECT_EQ(Job(job).state, JobState::kRunning);
  EXPECT_EQ(Job(job).attempts, 2);
}

// EL-2: what runs unclaimed runs.
TEST_F(StrangersTest, AStrangerKeepsThePlaceOfItsElement) {
  Join(kNode);
  JobSpec spec;
  spec.command = {"train"};
  spec.resources_per_worker.Set(kCpu, Amount::FromUnits(1));
  spec.array = "0-3%1";
  Transition transition;
  const JobId array = *state_->SubmitJob(Key(), "default", spec, transition);
  Submit(std::move(transition));
  ObservedAttempt zero = Run(array.Element(0), kNode);
  Backup();
  Say(kNode, Ended(zero, 0));
  const ObservedAttempt one = Run(array.Element(1), kNode);
  Restore();
  Join(kNode, {Ended(zero, 0), one});
  Settle();
  const auto started = [&] {
    const auto& all = state_->attempts().all();
    return std::count_if(all.begin(), all.end(), [](const auto& each) {
      return each.second.state != AttemptState::kEnded;
    });
  };
  COHORT_EXPECT_OK(Adopt(zero.attempt));
  EXPECT_EQ(Job(array.Element(0)).state, JobState::kSucceeded);
  EXPECT_EQ(started(), 0) << "element 1 runs";
  // Nor does a hold give its place away.
  Transition hold;
  COHORT_EXPECT_OK(state_->HoldJob(Key(), array.Element(1), hold));
  Submit(std::move(hold));
  EXPECT_EQ(started(), 0);
  Transition release;
  COHORT_EXPECT_OK(state_->ReleaseJob(Key(), array.Element(1), release));
  Submit(std::move(release));
  COHORT_EXPECT_OK(Adopt(one.attempt));
  EXPECT_EQ(started(), 1);
  Say(kNode, Ended(one, 1));
  EXPECT_EQ(Job(array.Element(1)).state, JobState::kFailed);
  EXPECT_EQ(started(), 1);
  EXPECT_EQ(Job(array.Element(2)).state, JobState::kStarting);
}

// EL-2: two strangers of one array, whose places are one.
TEST_F(StrangersTest, EndedStrangersDoNotStartAgainBesideEachOther) {
  Join(kNode, {}, 4);
  JobSpec spec;
  spec.command = {"train"};
  spec.resources_per_worker.Set(kCpu, Amount::FromUnits(1));
  spec.array = "0-3%2";
  Transition transition;
  const JobId array = *state_->SubmitJob(Key(), "default", spec, transition);
  Submit(std::move(transition));
  Backup();
  const ObservedAttempt zero = Run(array.Element(0), kNode);
  const ObservedAttempt one = Run(array.Element(1), kNode);
  ObservedAttempt lie = one;
  lie.attempt = IdOf<AttemptId>('l');
  lie.job = lie.wanted->job = array.Element(2);
  lie.wanted->attempt = lie.attempt;
  Restore();
  Join(kNode, {zero, one, lie}, 4);
  Settle();
  for (const AttemptId& id : {zero.attempt, one.attempt, lie.attempt}) {
    COHORT_EXPECT_OK(End(id));
  }
  Join(kNode, {}, 4);
  int started = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    started += Job(array.Element(i)).state == JobState::kStarting;
  }
  EXPECT_EQ(started, 2);
}

// DP-1: it ran when its dependency failed it, and could not be failed then.
TEST_F(StrangersTest, AnAdoptedJobFailsWhenItWaitsAgainForWhatFailed) {
  Join(kNode);
  const JobId first = NewJob();
  const ObservedAttempt before = Run(first, kNode);
  JobSpec spec;
  spec.command = {"train"};
  spec.resources_per_worker.Set(kCpu, Amount::FromUnits(1));
  spec.after = {{.job = first, .kind = DependencyKind::kOk}};
  Transition transition;
  const JobId second = *state_->SubmitJob(Key(), "default", spec, transition);
  Submit(std::move(transition));
  Backup();
  Say(kNode, Ended(before, 0));
  const ObservedAttempt running = Run(second, kNode);
  Restore();
  Join(kNode, {running, before});
  Settle();
  COHORT_EXPECT_OK(Adopt(running.attempt));
  COHORT_EXPECT_OK(Adopt(before.attempt));
  Say(kNode, Ended(before, 1));
  EXPECT_EQ(Job(first).state, JobState::kFailed);
  EXPECT_EQ(Job(second).state, JobState::kRunning);
  ObservedAttempt lost = running;
  lost.phase = ObservedPhase::kEnded;
  lost.end = ObservedEnd::kKeeperLost;
  Say(kNode, lost);
  EXPECT_EQ(Job(second).state, JobState::kFailed);
  EXPECT_THAT(Job(second).reason, HasSubstr("it was to start after"));
}

TEST_F(StrangersTest, WhatAPersonSaysIsTheCauseOfWhatFollows) {
  const JobId adopted = NewJob();
  const JobId ended = NewJob();
  Backup();
  Join(kNode);
  const ObservedAttempt one = Run(adopted, kNode);
  const ObservedAttempt two = Run(ended, kNode);
  Restore();
  Join(kNode, {one, two}, 3);
  Settle();
  COHORT_ASSERT_OK(Adopt(one.attempt));
  COHORT_ASSERT_OK(End(two.attempt));
  Say(kNode, Ended(two, 0));

  MemoryStore store(*disk_);
  std::map<std::string, const EventRecord*> last;  // by job and what
  const auto events = LoadRecords<EventRecord>(store);
  COHORT_ASSERT_OK(events);
  for (const EventRecord& event : *events) {
    const std::string job = event.job == adopted ? "adopted " : "ended ";
    last[absl::StrCat(job, event.kind == "job_moved"
                               ? event.text.substr(0, event.text.find(' '))
                               : event.kind)] = &event;
  }
  EXPECT_EQ(last.at("adopted STARTING")->origin.cause,
            last.at("adopted attempt_adopted")->number);
  EXPECT_EQ(last.at("ended STARTING")->origin.cause,
            last.at("ended lease_ended")->number);
  EXPECT_EQ(last.at("ended lease_ended")->origin.cause,
            last.at("ended attempt_ended")->number);
}

// Whether the store knows of the attempt or not.
TEST_F(StrangersTest, ExplainSaysWhatAPersonMaySayOfIt) {
  Join(kNode);
  const JobId known = NewJob(2);
  const ObservedAttempt one = Run(known, kNode);
  const JobId job = NewJob(2);
  Backup();
  Join(kOther);
  const ObservedAttempt two = Run(job, kOther);
  Restore();
  Join(kNode, {one});
  Join(kOther, {two});
  Settle();

  const Explanation runs = Explain(*state_, Job(known), /*read_only=*/false);
  EXPECT_THAT(runs.summary,
              AllOf(HasSubstr("cohort adopt " + one.attempt.ToHex()),
                    HasSubstr("cohort end " + one.attempt.ToHex())));
  const Explanation waits = Explain(*state_, Job(job), /*read_only=*/false);
  EXPECT_THAT(waits.summary,
              AllOf(HasSubstr("cohort adopt " + two.attempt.ToHex()),
                    HasSubstr("cohort end " + two.attempt.ToHex())));
  EXPECT_FALSE(waits.diagnosis.has_value()) << "it has its room";
  ASSERT_THAT(waits.changes, SizeIs(2));
  EXPECT_EQ(waits.changes[0].how, "cohort adopt " + two.attempt.ToHex());
  EXPECT_EQ(waits.changes[1].how, "cohort end " + two.attempt.ToHex());
}

// DR-2.
TEST_F(StrangersTest, AnAdoptedAttemptObeysTheDeadlineOfItsDrainedNode) {
  Join(kNode);
  const JobId job = NewJob();
  const ObservedAttempt running = Run(job, kNode);
  Backup();
  Restore();
  Join(kNode, {running});
  Transition transition;
  COHORT_EXPECT_OK(state_->DrainNode(
      Key(), kNode.ToHex(), {.reason = "", .deadline = absl::Seconds(1)},
      transition));
  Submit(std::move(transition));
  Settle();
  EXPECT_EQ(Job(job).state, JobState::kRunning);
  sent_.clear();
  COHORT_EXPECT_OK(Adopt(running.attempt));
  EXPECT_EQ(TakeGoals(kNode).back(), Goal::kStop);
  EXPECT_EQ(Last(job).cause, EndCause::kDrained);
}

// It ends because a person said so, not because of the drain.
TEST_F(StrangersTest, AnEndedAttemptIsNotOneOfItsDrainedNode) {
  Join(kNode);
  const JobId job = NewJob();
  const ObservedAttempt running = Run(job, kNode);
  Backup();
  Restore();
  Join(kNode, {running});
  Transition transition;
  COHORT_EXPECT_OK(state_->DrainNode(
      Key(), kNode.ToHex(), {.reason = "", .deadline = absl::Seconds(1)},
      transition));
  Submit(std::move(transition));
  Settle();
  COHORT_EXPECT_OK(End(running.attempt));
  EXPECT_EQ(Last(job).cause, EndCause::kUnclaimed);
}

}  // namespace
}  // namespace cohort::head
