// What nodes say of attempts that cannot be.

#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/resources.h"
#include "common/status_util.h"
#include "common/testing/status_matchers.h"
#include "head/state/orphans.h"
#include "head/state/testing/orphan_fixture.h"

namespace cohort::head {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

using OrphanLiesTest = OrphansTest;

TEST_F(OrphanLiesTest, HugeAmountsAreHeldAndGivenBack) {
  const JobId job = NewJob();
  const JobId other = NewJob();
  Backup();
  Join(kNode);
  v1::ObservedPlace first = Run(job, kNode);
  v1::ObservedPlace second = Run(other, kNode);
  ResourceSet huge;
  huge.Set(kMemory, Amount::FromUnits(900'000'000'000'000));
  first.held->resources = huge;
  second.held->resources = huge;
  Restore();
  Registration registration;
  registration.node = kNode;
  registration.name = "node-n";
  registration.resources = huge;
  registration.observed = {.full = true, .attempts = {first, second}};
  for (const bool gone : {false, true}) {
    if (gone) registration.observed.attempts.clear();
    Transition transition;
    COHORT_EXPECT_OK(state_->RegisterNode(registration, transition));
    Submit(std::move(transition));
  }
  EXPECT_EQ(state_->nodes().AvailableOn(kNode), huge);
}

TEST_F(OrphanLiesTest, NothingOfADeviceIsHeldAndGivenBack) {
  const JobId job = NewJob();
  const JobId other = NewJob();
  Backup();
  Join(kNode);
  v1::ObservedPlace first = Run(job, kNode);
  v1::ObservedPlace second = Run(other, kNode);
  first.held->devices["x"] = Amount();
  second.held->devices["x"] = Amount();
  Restore();
  Join(kNode, {first, second});
  EXPECT_THAT(state_->orphans().all(), SizeIs(2));
  Join(kNode);  // it has them no more
  EXPECT_TRUE(state_->nodes().IsEmpty(kNode));
}

TEST_F(OrphanLiesTest, TooManyAreRefusedByName) {
  const JobId job = NewJob();
  Backup();
  Join(kNode);
  v1::ObservedPlace running = Run(job, kNode);
  Restore();
  Registration registration;
  registration.node = kNode;
  registration.name = "node-n";
  registration.resources.Set(kCpu, Amount::FromUnits(2));
  for (size_t i = 0; i <= kOrphansMax; ++i) {
    running.attempt = AttemptId::New(random_);
    registration.observed.attempts.push_back(running);
  }
  Transition transition;
  const auto refused = state_->RegisterNode(registration, transition);
  EXPECT_TRUE(transition.empty());
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(GetReason(refused.status()), "too_many_orphans");
  EXPECT_THAT(state_->orphans().all(), IsEmpty());
}

TEST_F(OrphanLiesTest, ALieAboutAnotherJobKeepsNothingWaiting) {
  const JobId job = NewJob();
  const JobId other = NewJob();
  Backup();
  Join(kNode, {}, 1);
  v1::ObservedPlace running = Run(job, kNode);
  Restore();
  Join(kNode, {running}, 4);
  running.job = other;
  Say(kNode, running);
  Settle();
  EXPECT_EQ(Job(job).state, v1::JOB_STATE_PENDING);
  EXPECT_EQ(Job(other).state, v1::JOB_STATE_STARTING);
}

// Its row says where it is.
TEST_F(OrphanLiesTest, AnotherNodesWordOfAnAttemptCountsForNothing) {
  Join(kNode);
  const JobId job = NewJob();
  const v1::ObservedPlace running = Run(job, kNode);
  Backup();
  Restore();
  const RegisteredNode other = Join(kOtherNode, {running});
  ASSERT_THAT(other.desired, SizeIs(1));
  EXPECT_EQ(other.desired[0].goal, v1::GOAL_FORGET);
  EXPECT_STREQ(State(running.attempt), "AWAY");
  Join(kNode, {running});
  EXPECT_STREQ(State(running.attempt), "RUNNING");
  COHORT_EXPECT_OK(Adopt(running.attempt));
  EXPECT_EQ(Job(job).state, v1::JOB_STATE_RUNNING);
}

// RC-1: of this generation, as ever.
TEST_F(OrphanLiesTest, UnknownAttemptsOfThisGenerationAreForgotten) {
  Join(kNode);
  const JobId job = NewJob();
  v1::ObservedPlace unknown = Run(job, kNode);
  unknown.attempt = IdOf<AttemptId>('x');
  const RegisteredNode again =
      Join(kNode, {At(job, Stage::kRunning), unknown});
  ASSERT_THAT(again.desired, SizeIs(2));
  EXPECT_EQ(again.desired[0].goal, v1::GOAL_RUN);
  EXPECT_EQ(again.desired[1].goal, v1::GOAL_FORGET);
  EXPECT_THAT(state_->orphans().all(), IsEmpty());
}

}  // namespace
}  // namespace cohort::head
