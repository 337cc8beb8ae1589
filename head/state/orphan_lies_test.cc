// What nodes say of attempts that cannot be.

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/resources.h"
#include "common/status_util.h"
#include "common/testing/status_matchers.h"
#include "head/state/orphans.h"
#include "head/state/testing/orphan_fixture.h"
#include "head/testing/messages.h"

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
  *first.mutable_resources_per_process() = rpc::ToWire(huge);
  *second.mutable_resources_per_process() = rpc::ToWire(huge);
  Restore();
  Registration registration;
  registration.id = kNode;
  registration.node.set_name("node-n");
  SetResources(registration.node, huge);
  registration.observed = ObservedOf({first, second});
  for (const bool gone : {false, true}) {
    if (gone) registration.observed.clear_places();
    Transition transition;
    COHORT_EXPECT_OK(state_->RegisterNode(registration, transition));
    Submit(std::move(transition));
  }
  EXPECT_EQ(state_->nodes().AvailableOn(kNode), huge);
}

// Each holds what the node has, and all of them more than can be counted.
TEST_F(OrphanLiesTest, WhatManyProcessesHoldIsAllOfTheNode) {
  const JobId job = NewJob();
  Backup();
  Join(kNode);
  v1::ObservedPlace running = Run(job, kNode);
  ResourceSet huge;
  huge.Set(kMemory, Amount::FromUnits(900'000'000'000'000));
  *running.mutable_resources_per_process() = rpc::ToWire(huge);
  for (int slot = 1; slot < 1'000; ++slot) {
    *running.add_processes() = running.processes(0);
    running.mutable_processes(slot)->set_slot(slot);
  }
  Restore();
  Registration registration;
  registration.id = kNode;
  registration.node.set_name("node-n");
  SetResources(registration.node, huge);
  registration.observed = ObservedOf({running});
  Transition transition;
  COHORT_EXPECT_OK(state_->RegisterNode(registration, transition));
  Submit(std::move(transition));
  EXPECT_TRUE(state_->nodes().AvailableOn(kNode).empty());
  Say(kNode, Ended(running, 0));
  EXPECT_EQ(state_->nodes().AvailableOn(kNode), huge);
}

TEST_F(OrphanLiesTest, NothingOfADeviceIsHeldAndGivenBack) {
  const JobId job = NewJob();
  const JobId other = NewJob();
  Backup();
  Join(kNode);
  v1::ObservedPlace first = Run(job, kNode);
  v1::ObservedPlace second = Run(other, kNode);
  // Of no GPU, a share of one.
  first.mutable_processes(0)->add_gpu_ids("x");
  second.mutable_processes(0)->add_gpu_ids("x");
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
  registration.id = kNode;
  registration.node.set_name("node-n");
  SetResource(registration.node, kCpu, Amount::FromUnits(2));
  for (size_t i = 0; i <= kOrphansMax; ++i) {
    running.set_attempt_id(std::string(AttemptId::New(random_).bytes()));
    *registration.observed.add_places() = running;
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
  running.set_job_id(other.bytes());
  Say(kNode, running);
  Settle();
  EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_PENDING);
  EXPECT_EQ(Job(other).row.state(), v1::JOB_STATE_STARTING);
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
  EXPECT_EQ(GoalFor(other.desired[0]), v1::GOAL_FORGET);
  EXPECT_STREQ(State(AttemptOf(running)), "AWAY");
  Join(kNode, {running});
  EXPECT_STREQ(State(AttemptOf(running)), "RUNNING");
  COHORT_EXPECT_OK(Adopt(AttemptOf(running)));
  EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_RUNNING);
}

// RC-1: of this generation, as ever.
TEST_F(OrphanLiesTest, UnknownAttemptsOfThisGenerationAreForgotten) {
  Join(kNode);
  const JobId job = NewJob();
  v1::ObservedPlace unknown = Run(job, kNode);
  unknown.set_attempt_id(std::string(AttemptId::kBytes, 'x'));
  const RegisteredNode again = Join(kNode, {At(job, Stage::kRunning), unknown});
  ASSERT_THAT(again.desired, SizeIs(2));
  EXPECT_EQ(GoalFor(again.desired[0]), v1::GOAL_RUN);
  EXPECT_EQ(GoalFor(again.desired[1]), v1::GOAL_FORGET);
  EXPECT_THAT(state_->orphans().all(), IsEmpty());
}

}  // namespace
}  // namespace cohort::head
