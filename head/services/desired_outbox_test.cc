#include "head/services/desired_outbox.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "common/testing/status_matchers.h"

namespace cohort::head {
namespace {

class DesiredOutboxTest : public ::testing::Test {
 protected:
  v1::DesiredPlace Want(Goal goal, size_t bytes = 1) {
    v1::DesiredPlace desired;
    desired.set_attempt_id(std::string(AttemptId::New(random_).bytes()));
    desired.set_goal(goal == v1::GOAL_FORGET ? goal : v1::GOAL_PREPARE);
    (*desired.mutable_launch()->mutable_environment())["E"] =
        std::string(bytes, 'e');
    if (goal != v1::GOAL_FORGET) AddProcess(desired, 1, goal);
    return desired;
  }
  static void AddProcess(v1::DesiredPlace& place, uint64_t incarnation,
                         Goal goal) {
    v1::DesiredProcess& process = *place.add_processes();
    process.set_incarnation(incarnation);
    process.set_goal(goal);
  }

  SeededRandom random_{1};
  DesiredOutbox outbox_;
};

TEST_F(DesiredOutboxTest, AFullSetGoesInChunksOfWhichTheLastIsMarked) {
  outbox_.BeginFull();
  std::vector<v1::DesiredPlace> wanted;
  for (int i = 0; i < 40; ++i) wanted.push_back(Want(v1::GOAL_RUN, 1'000));
  COHORT_ASSERT_OK(outbox_.Add(wanted));
  size_t told = 0;
  uint64_t messages = 0;
  while (!outbox_.empty()) {
    const v1::Desired desired = outbox_.Next(10'000);
    EXPECT_TRUE(desired.full());
    EXPECT_EQ(desired.version(), ++messages);
    EXPECT_LT(desired.ByteSizeLong(), 12'000u);
    for (const v1::DesiredPlace& each : desired.places()) {
      EXPECT_EQ(each.attempt_id(), wanted[told++].attempt_id());
    }
    EXPECT_EQ(desired.more(), told < wanted.size());
  }
  EXPECT_EQ(told, wanted.size());
  EXPECT_GT(messages, 3u);
  COHORT_ASSERT_OK(outbox_.Add({Want(v1::GOAL_RUN)}));
  EXPECT_FALSE(outbox_.Next(10'000).full());
}

TEST_F(DesiredOutboxTest, AnEmptyFullSetIsToldToo) {
  outbox_.BeginFull();
  ASSERT_FALSE(outbox_.empty());
  const v1::Desired desired = outbox_.Next(1);
  EXPECT_TRUE(desired.full());
  EXPECT_FALSE(desired.more());
  EXPECT_TRUE(outbox_.empty());
}

TEST_F(DesiredOutboxTest, WhatAPlaceLaunchesIsToldOnceUntilItIsForgotten) {
  v1::DesiredPlace place = Want(v1::GOAL_RUN);
  const auto tell = [&] {
    COHORT_EXPECT_OK(outbox_.Add({place}));
    return outbox_.Next(10'000).places(0);
  };
  EXPECT_TRUE(tell().has_launch());
  EXPECT_FALSE(tell().has_launch());
  place.set_goal(v1::GOAL_FORGET);
  tell();
  place.set_goal(v1::GOAL_PREPARE);
  EXPECT_TRUE(tell().has_launch());
}

TEST_F(DesiredOutboxTest, OfAnAttemptOnlyTheNewestWordIsTold) {
  v1::DesiredPlace first = Want(v1::GOAL_PREPARE);
  const v1::DesiredPlace second = Want(v1::GOAL_RUN);
  COHORT_ASSERT_OK(outbox_.Add({first, second}));
  first.mutable_processes(0)->set_goal(v1::GOAL_STOP);
  COHORT_ASSERT_OK(outbox_.Add({first}));
  const v1::Desired desired = outbox_.Next(10'000);
  ASSERT_EQ(desired.places_size(), 2);
  EXPECT_EQ(desired.places(0).attempt_id(), first.attempt_id());
  ASSERT_EQ(desired.places(0).processes_size(), 1);
  EXPECT_EQ(desired.places(0).processes(0).goal(), v1::GOAL_STOP);
  EXPECT_TRUE(outbox_.empty());
}

// A process is told to be forgotten once only.
TEST_F(DesiredOutboxTest, ANewerWordForgetsWhatAnEarlierOneDid) {
  v1::DesiredPlace first = Want(v1::GOAL_FORGET);
  first.set_goal(v1::GOAL_PREPARE);
  AddProcess(first, 1, v1::GOAL_FORGET);
  v1::DesiredPlace second = first;
  second.clear_processes();
  AddProcess(second, 2, v1::GOAL_RUN);
  COHORT_ASSERT_OK(outbox_.Add({first, second, second}));
  const v1::Desired desired = outbox_.Next(10'000);
  ASSERT_EQ(desired.places_size(), 1);
  const v1::DesiredPlace& told = desired.places(0);
  ASSERT_EQ(told.processes_size(), 2);
  EXPECT_EQ(told.processes(0).goal(), v1::GOAL_RUN);
  EXPECT_EQ(told.processes(1).incarnation(), 1u);
  EXPECT_EQ(told.processes(1).goal(), v1::GOAL_FORGET);
  // All of it goes at once.
  COHORT_ASSERT_OK(outbox_.Add({first}));
  second.set_goal(v1::GOAL_FORGET);
  second.clear_processes();
  COHORT_ASSERT_OK(outbox_.Add({second}));
  EXPECT_EQ(outbox_.Next(10'000).places(0).processes_size(), 0);
}

TEST_F(DesiredOutboxTest, ExchangesFollowTheirAttemptsOneByOne) {
  const v1::DesiredPlace attempt = Want(v1::GOAL_RUN);
  for (const char* const tag : {"a", "b"}) {
    v1::Exchange exchange;
    exchange.set_attempt_id(attempt.attempt_id());
    exchange.set_tag(tag);
    for (const char* const blob : {"x", "y"}) exchange.add_blobs(blob);
    COHORT_ASSERT_OK(outbox_.AddExchanges(
        {std::make_shared<const v1::Exchange>(std::move(exchange))}));
  }
  COHORT_ASSERT_OK(outbox_.Add({attempt}));
  EXPECT_EQ(outbox_.Next(10'000).exchanges_size(), 0);
  for (const char* const tag : {"a", "b"}) {
    const v1::Desired desired = outbox_.Next(10'000);
    ASSERT_EQ(desired.exchanges_size(), 1);
    EXPECT_EQ(desired.exchanges(0).attempt_id(), attempt.attempt_id());
    EXPECT_EQ(desired.exchanges(0).tag(), tag);
    EXPECT_EQ(desired.exchanges(0).blobs_size(), 2);
  }
  EXPECT_TRUE(outbox_.empty());
}

TEST_F(DesiredOutboxTest, RefusesMoreThanANodeCanHave) {
  const std::vector<v1::DesiredPlace> one = {Want(v1::GOAL_RUN)};
  for (size_t i = 0; i <= DesiredOutbox::kAttemptsMax; ++i) {
    COHORT_ASSERT_OK(outbox_.Add(one));
  }
  absl::Status added;
  for (size_t i = 0; added.ok() && i <= DesiredOutbox::kAttemptsMax; ++i) {
    added = outbox_.Add({Want(v1::GOAL_FORGET)});
  }
  EXPECT_THAT(added, StatusIs(absl::StatusCode::kResourceExhausted));
}

}  // namespace
}  // namespace cohort::head
