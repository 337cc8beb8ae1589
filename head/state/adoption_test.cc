#include "head/state/adoption.h"

#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "head/state/testing/unclaimed_fixture.h"

namespace cohort::head {
namespace {

// Began after the backup, and its node says how it ended.
class EndedAdoptionTest : public UnclaimedTest {
 protected:
  EndedAdoptionTest() {
    job_ = NewJob(2);
    Backup();
    Join(kNode);
    ended_ = Ended(Run(job_, kNode), 0);
    Restore();
    Join(kNode, {ended_});
    Settle();
  }

  JobId job_;
  ObservedAttempt ended_;
};

TEST_F(EndedAdoptionTest, AFullNodeDoesNotKeepAnOutcome) {
  const JobId other = NewJob(2);
  ASSERT_EQ(Job(other).state, JobState::kStarting);
  ASSERT_EQ(FreeCpus(kNode), Amount());
  EXPECT_THAT(Adopt(ended_.attempt), IsOkAndHolds(job_));
  EXPECT_EQ(Job(job_).state, JobState::kSucceeded);
  // What the other has is its own.
  EXPECT_EQ(FreeCpus(kNode), Amount());
  Load();
  Join(kNode, {At(other, ObservedPhase::kPreparing)});
  EXPECT_EQ(FreeCpus(kNode), Amount());
  EXPECT_EQ(Job(job_).state, JobState::kSucceeded);
}

TEST_F(EndedAdoptionTest, ANodeThatDiedSinceDoesNotKeepAnOutcome) {
  silent_ = {kNode};
  Settle();
  ASSERT_EQ(state_->nodes().Find(kNode)->state, NodeState::kDead);
  EXPECT_THAT(Adopt(ended_.attempt), IsOkAndHolds(job_));
  EXPECT_EQ(Job(job_).state, JobState::kSucceeded);
}

// Submitted after the backup was made.
class LostJobAdoptionTest : public UnclaimedTest {
 protected:
  LostJobAdoptionTest() {
    Join(kNode);
    Backup();
    job_ = NewJob();
    running_ = Run(job_, kNode);
  }
  const JobSpec& Adopted() {
    Restore();
    Join(kNode, {running_});
    Settle();
    EXPECT_THAT(Adopt(running_.attempt), IsOkAndHolds(job_));
    return *Job(job_).spec;
  }

  JobId job_;
  ObservedAttempt running_;
};

TEST_F(LostJobAdoptionTest, KeepsTheGraceAndWhatIsLeftOfTheTimeLimit) {
  running_.wanted->goal = Goal::kRun;
  running_.wanted->grace = absl::Minutes(10);
  running_.wanted->time_limit = absl::Minutes(5);
  const JobSpec& spec = Adopted();
  EXPECT_EQ(spec.grace, absl::Minutes(10));
  EXPECT_EQ(spec.time_limit, absl::Minutes(5));
}

TEST_F(LostJobAdoptionTest, TheGraceOfAStopIsNotTheJobs) {
  running_.wanted->goal = Goal::kStop;
  running_.wanted->grace = absl::Seconds(1);
  const JobSpec& spec = Adopted();
  EXPECT_EQ(spec.grace, kDefaultGrace);
  EXPECT_EQ(spec.time_limit, absl::InfiniteDuration());
}

}  // namespace
}  // namespace cohort::head
