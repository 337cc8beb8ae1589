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

}  // namespace
}  // namespace cohort::head
