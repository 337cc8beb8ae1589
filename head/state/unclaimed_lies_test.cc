// What nodes say of attempts that cannot be.

#include <limits>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/resources.h"
#include "common/status_util.h"
#include "common/testing/status_matchers.h"
#include "head/state/testing/unclaimed_fixture.h"
#include "head/state/unclaimed.h"

namespace cohort::head {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using UnclaimedLiesTest = UnclaimedTest;

TEST_F(UnclaimedLiesTest, HugeAmountsAreHeldAndGivenBackAndNotAdopted) {
  const JobId job = NewJob();
  const JobId other = NewJob();
  Backup();
  Join(kNode);
  ObservedAttempt first = Run(job, kNode);
  ObservedAttempt second = Run(other, kNode);
  ResourceSet huge;
  huge.Set(kMemory, Amount::FromUnits(900'000'000'000'000));
  first.wanted->resources_per_rank = huge;
  second.wanted->resources_per_rank = huge;
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
    if (gone) break;
    EXPECT_THAT(Adopt(first.attempt),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("its job here asks for")));
  }
  EXPECT_EQ(state_->nodes().AvailableOn(kNode), huge);
}

TEST_F(UnclaimedLiesTest, NothingOfADeviceIsHeldAndGivenBack) {
  const JobId job = NewJob();
  const JobId other = NewJob();
  Backup();
  Join(kNode);
  ObservedAttempt first = Run(job, kNode);
  ObservedAttempt second = Run(other, kNode);
  first.wanted->ranks[0].gpu_ids = {"x"};
  second.wanted->ranks[0].gpu_ids = {"x"};
  Restore();
  Join(kNode, {first, second});
  EXPECT_THAT(state_->unclaimed().all(), SizeIs(2));
  Join(kNode);  // it has them no more
  EXPECT_TRUE(state_->nodes().IsEmpty(kNode));
}

TEST_F(UnclaimedLiesTest, WhatItsNodesSayHasToBePossibleToBeAdopted) {
  Backup();
  Join(kNode);
  const ObservedAttempt running = Run(NewJob(), kNode);
  Restore();
  Join(kNode, {running});
  const auto refused = [&](auto change, const char* why) {
    ObservedAttempt lie = running;
    change(lie);
    Say(kNode, lie);
    const absl::StatusOr<JobId> adopted = Adopt(lie.attempt);
    EXPECT_THAT(adopted,
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(why)))
        << why;
    EXPECT_EQ(GetReason(adopted.status()), "cannot_adopt");
  };
  refused([](auto& lie) { lie.wanted->ranks[0].rank = 7; }, "rank 7 of 1");
  refused([](auto& lie) { lie.wanted->world_size = 100'000'000; },
          "1 ranks of 100000000");
  refused([](auto& lie) { lie.wanted->ranks.push_back(lie.wanted->ranks[0]); },
          "rank 0 is there twice");
  refused([](auto& lie) { lie.wanted->ranks[0].gpu_ids = {"GPU-x"}; },
          "has 1 GPUs and asked for 0");
  refused(
      [](auto& lie) {
        lie.wanted->ranks[0].gpu_ids = {"GPU-x"};
        lie.wanted->resources_per_rank.Set(kGpu, Amount::FromUnits(1));
      },
      "on node node-n");
  refused(
      [](auto& lie) {
        lie.wanted->resources_per_rank.Set(kCpu, Amount::FromUnits(3));
      },
      "it would hold CPU 3");
  refused([](auto& lie) { lie.wanted->job = JobId(); }, "contradicts");
  refused(
      [](auto& lie) { lie.wanted->number = std::numeric_limits<int>::max(); },
      "number 2147483647");
  Say(kNode, running);
  silent_ = {kNode};
  Settle();
  refused([](auto&) {}, "is dead");
}

TEST_F(UnclaimedLiesTest, DevicesOfAnotherAttemptAreNotAdopted) {
  Backup();
  Join(kNode);
  const JobId job = NewJob(2);
  const ObservedAttempt running = Run(job, kNode);
  Restore();
  Join(kNode);
  Settle();
  const JobId now = NewJob(2);
  ASSERT_EQ(Job(now).state, JobState::kStarting);
  ObservedAttempt own = At(now, ObservedPhase::kPreparing);
  Join(kNode, {own, running});
  EXPECT_THAT(Adopt(running.attempt),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("other attempts hold what it needs")));
  EXPECT_EQ(Job(now).state, JobState::kStarting);
  COHORT_EXPECT_OK(End(running.attempt));
}

TEST_F(UnclaimedLiesTest, ReportsThatAreTooManyOrTooLongAreRefusedByName) {
  const JobId job = NewJob();
  Backup();
  Join(kNode);
  ObservedAttempt running = Run(job, kNode);
  Restore();
  Join(kOther);
  Registration registration;
  registration.node = kNode;
  registration.name = "node-n";
  registration.resources.Set(kCpu, Amount::FromUnits(2));
  for (char c = 'a'; c < 'a' + 5; ++c) {
    ObservedAttempt lie = running;
    lie.attempt = lie.wanted->attempt = IdOf<AttemptId>(c);
    lie.wanted->environment = {{"A", std::string(4 << 20, 'x')}};
    registration.observed.attempts.push_back(lie);
  }
  Transition transition;
  const auto refused = state_->RegisterNode(registration, transition);
  EXPECT_TRUE(transition.empty());
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                HasSubstr("bytes of its unclaimed attempts")));
  EXPECT_EQ(GetReason(refused.status()), "too_many_unclaimed");
  EXPECT_THAT(state_->unclaimed().all(), IsEmpty());
  // Said again and again, one of them takes the room of one.
  registration.observed = {.full = true,
                           .attempts = {registration.observed.attempts[0]}};
  for (int i = 0; i < 10; ++i) {
    Transition fine;
    COHORT_EXPECT_OK(state_->RegisterNode(registration, fine));
    Submit(std::move(fine));
  }
}

TEST_F(UnclaimedLiesTest, ALieAboutAnotherJobKeepsNothingWaiting) {
  const JobId job = NewJob();
  const JobId other = NewJob();
  Backup();
  Join(kNode, {}, 1);
  ObservedAttempt running = Run(job, kNode);
  Restore();
  Join(kNode, {running}, 4);
  running.job = other;
  Say(kNode, running);
  Settle();
  EXPECT_EQ(Job(job).state, JobState::kPending);
  EXPECT_EQ(Job(other).state, JobState::kStarting);
  EXPECT_THAT(Adopt(running.attempt),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("contradicts")));
}

// Its row says where it is.
TEST_F(UnclaimedLiesTest, AnotherNodesWordOfAnAttemptCountsForNothing) {
  Join(kNode);
  const JobId job = NewJob();
  const ObservedAttempt running = Run(job, kNode);
  Backup();
  Restore();
  const RegisteredNode other = Join(kOther, {running});
  ASSERT_THAT(other.desired, SizeIs(1));
  EXPECT_EQ(other.desired[0].goal, Goal::kForget);
  EXPECT_STREQ(State(running.attempt), "AWAY");
  Join(kNode, {running});
  EXPECT_STREQ(State(running.attempt), "RUNNING");
  COHORT_EXPECT_OK(Adopt(running.attempt));
  EXPECT_EQ(Job(job).state, JobState::kRunning);
}

// RC-1: of this generation, as ever.
TEST_F(UnclaimedLiesTest, UnknownAttemptsOfThisGenerationAreForgotten) {
  Join(kNode);
  const JobId job = NewJob();
  ObservedAttempt stray = Run(job, kNode);
  stray.attempt = IdOf<AttemptId>('x');
  const RegisteredNode again =
      Join(kNode, {At(job, ObservedPhase::kRunning), stray});
  ASSERT_THAT(again.desired, SizeIs(2));
  EXPECT_EQ(again.desired[0].goal, Goal::kRun);
  EXPECT_EQ(again.desired[1].goal, Goal::kForget);
  EXPECT_THAT(state_->unclaimed().all(), IsEmpty());
}

}  // namespace
}  // namespace cohort::head
