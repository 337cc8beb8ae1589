// Attempts that began after the backup and that a person has ended: their jobs
// wait until they are gone (OR-2).

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/status_util.h"
#include "common/testing/status_matchers.h"
#include "head/state/testing/orphan_fixture.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Both nodes have room for the job, whose orphan runs on kNode.
class EndedOrphansTest : public OrphansTest {
 protected:
  EndedOrphansTest() {
    job_ = NewJob();
    Backup();
    Join(kNode);
    running_ = Run(job_, kNode);
    Restore();
    Join(kOtherNode);
    Join(kNode, {running_});
    Settle();
    sent_.clear();
  }

  JobId job_;
  v1::ObservedPlace running_;
};

TEST_F(EndedOrphansTest, TheJobWaitsUntilItsNodeSaysThatItEnded) {
  COHORT_ASSERT_OK(End(AttemptOf(running_)));
  EXPECT_EQ(Job(job_).row.state(), v1::JOB_STATE_PENDING);
  EXPECT_STREQ(State(AttemptOf(running_)), "ENDING");
  EXPECT_THAT(state_->ReasonOf(Job(job_)),
              HasSubstr(AttemptOf(running_).ToHex() + " was ended"));
  // Its node has not heard of it.
  Say(kNode, running_);
  EXPECT_THAT(TakeGoals(kNode), ElementsAre(v1::GOAL_FORGET, v1::GOAL_FORGET));
  EXPECT_EQ(Job(job_).row.state(), v1::JOB_STATE_PENDING);
  Say(kNode, Ended(running_, 137));
  EXPECT_STREQ(State(AttemptOf(running_)), "none");
  EXPECT_EQ(Job(job_).row.state(), v1::JOB_STATE_STARTING);
}

TEST_F(EndedOrphansTest, TheJobWaitsForASilentNodeUntilItIsDead) {
  COHORT_ASSERT_OK(End(AttemptOf(running_)));
  silent_ = {kNode};
  while (state_->nodes().Find(kNode)->state != v1::NODE_STATE_DEAD) {
    ASSERT_EQ(Job(job_).row.state(), v1::JOB_STATE_PENDING);
    Tick();
  }
  EXPECT_STREQ(State(AttemptOf(running_)), "none");
  ASSERT_EQ(Job(job_).row.state(), v1::JOB_STATE_STARTING);
  EXPECT_EQ(Last(job_).places[0].node, kOtherNode);
  // What comes back is told to go.
  const RegisteredNode again = Join(kNode, {running_});
  ASSERT_EQ(again.desired.size(), 1u);
  EXPECT_EQ(GoalFor(again.desired[0]), v1::GOAL_FORGET);
  EXPECT_EQ(state_->ReasonOf(Job(job_)), "") << "it runs elsewhere";
  Join(kNode);
  EXPECT_STREQ(State(AttemptOf(running_)), "none");
}

TEST_F(EndedOrphansTest, WhatIsOnADeadNodeIsGoneAtOnce) {
  silent_ = {kNode};
  Settle();
  ASSERT_EQ(state_->nodes().Find(kNode)->state, v1::NODE_STATE_DEAD);
  EXPECT_EQ(Job(job_).row.state(), v1::JOB_STATE_PENDING);
  COHORT_ASSERT_OK(End(AttemptOf(running_)));
  EXPECT_EQ(Job(job_).row.state(), v1::JOB_STATE_STARTING);
}

// The order never arrived.
TEST_F(EndedOrphansTest, AStartOfTheHeadWaitsForItToo) {
  COHORT_ASSERT_OK(End(AttemptOf(running_)));
  Load();
  Join(kOtherNode);
  EXPECT_EQ(Job(job_).row.state(), v1::JOB_STATE_PENDING);
  Join(kNode, {running_});
  Settle();
  EXPECT_EQ(Job(job_).row.state(), v1::JOB_STATE_PENDING);
  EXPECT_STREQ(State(AttemptOf(running_)), "ENDING");
  Join(kNode);
  EXPECT_EQ(Job(job_).row.state(), v1::JOB_STATE_STARTING);
}

TEST_F(EndedOrphansTest, EndedTwiceIsEndedOnceAndNotAdopted) {
  COHORT_ASSERT_OK(End(AttemptOf(running_)));
  EXPECT_THAT(End(AttemptOf(running_)), IsOkAndHolds(job_));
  EXPECT_EQ(state_->cluster().ended_orphans_size(), 1);
  const absl::StatusOr<JobId> adopted = Adopt(AttemptOf(running_));
  EXPECT_THAT(adopted, StatusIs(absl::StatusCode::kFailedPrecondition,
                                HasSubstr("no record of it")));
  EXPECT_EQ(GetReason(adopted.status()), "cannot_adopt");
}

}  // namespace
}  // namespace cohort::head
