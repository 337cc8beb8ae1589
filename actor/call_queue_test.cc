#include "actor/call_queue.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "actor/call_limits.h"

namespace cohort::actor {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class CallQueueTest : public ::testing::Test {
 protected:
  void Add(uint64_t number, int retries = 0) {
    queue_.Add({.number = number,
                .method = "Run",
                .arguments = absl::StrCat("call ", number),
                .retries_left = retries,
                .done = [](const auto&) {}});
  }
  // The arguments of all that may be taken.
  std::vector<std::string> TakeAll() {
    std::vector<std::string> taken;
    while (queue_.MayTake()) taken.push_back(queue_.Take().arguments);
    return taken;
  }

  CallQueue queue_;
  std::vector<EndedCall> ended_;
};

TEST_F(CallQueueTest, NumbersWhatIsTaken) {
  Add(7);
  Add(9);
  EXPECT_EQ(queue_.Take().sequence, 1u);
  EXPECT_EQ(queue_.Take().sequence, 2u);
  EXPECT_FALSE(queue_.MayTake());
  EXPECT_NE(queue_.Finish(2), nullptr);
  EXPECT_EQ(queue_.Finish(2), nullptr);
  EXPECT_EQ(queue_.Finish(3), nullptr);
  EXPECT_EQ(queue_.Finish(0), nullptr);
  EXPECT_EQ(queue_.pending(), 1u);
  EXPECT_NE(queue_.Finish(1), nullptr);
  EXPECT_EQ(queue_.Finish(1), nullptr);
  EXPECT_FALSE(queue_.HasSent());
  Add(10);
  EXPECT_EQ(queue_.Take().sequence, 3u);
}

TEST_F(CallQueueTest, NumbersAnewForAnotherIncarnation) {
  Add(1);
  queue_.Take();
  queue_.Finish(1);
  queue_.Break();
  EXPECT_FALSE(queue_.HasLost());
  EXPECT_EQ(queue_.last_sequence(), 1u);
  queue_.StartAnew();
  Add(2);
  EXPECT_EQ(queue_.Take().sequence, 1u);
}

TEST_F(CallQueueTest, SendsAgainUnderTheSameSequenceBeforeTheRest) {
  for (uint64_t number = 1; number <= 6; ++number) Add(number);
  for (int i = 0; i < 5; ++i) queue_.Take();
  queue_.Finish(3);
  queue_.Cancel(4);
  queue_.Break();
  EXPECT_TRUE(queue_.HasLost());
  EXPECT_FALSE(queue_.HasSent());
  EXPECT_FALSE(queue_.MayTake());
  EXPECT_EQ(queue_.last_sequence(), 5u);
  // Nobody sends it again, so there is nothing to tell.
  EXPECT_FALSE(queue_.Cancel(1).sequence.has_value());
  queue_.Resume();
  EXPECT_EQ(queue_.Take().sequence, 2u);
  // Not sent again yet.
  const auto cancelled = queue_.Cancel(5);
  EXPECT_NE(cancelled.done, nullptr);
  EXPECT_FALSE(cancelled.sequence.has_value());
  const auto next = queue_.Take();
  EXPECT_EQ(next.arguments, "call 6");
  EXPECT_EQ(next.sequence, 6u);
  EXPECT_FALSE(queue_.MayTake());
  EXPECT_EQ(queue_.pending(), 2u);
  // Half of it is sent again when the stream breaks again.
  Add(7);
  queue_.Break();
  queue_.Resume();
  queue_.Take();
  queue_.Break();
  queue_.Resume();
  EXPECT_THAT(TakeAll(), ElementsAre("call 2", "call 6", "call 7"));
}

TEST_F(CallQueueTest, SendsAgainWhatWasOvertakenAndKeepsTheWindow) {
  Add(1);
  queue_.Take();
  for (uint64_t number = 2; number <= kWindowCalls + 1; ++number) {
    Add(number);
    queue_.Finish(queue_.Take().sequence);
  }
  for (uint64_t i = 0; i < kWindowCalls; ++i) Add(kWindowCalls + 2 + i);
  while (queue_.MayTake()) queue_.Take();
  queue_.Break();
  queue_.Resume();
  EXPECT_EQ(queue_.Take().sequence, 1u);
  EXPECT_EQ(queue_.Take().sequence, kWindowCalls + 2);
  EXPECT_THAT(TakeAll(), SizeIs(kWindowCalls - 2));
}

TEST_F(CallQueueTest, GivesUpWhatHasNoRetry) {
  Add(1);
  Add(2, 1);
  queue_.Take();
  queue_.Take();
  queue_.Break();
  queue_.GiveUp(absl::UnavailableError("lost"), /*retries_too=*/false, ended_);
  EXPECT_THAT(ended_, SizeIs(1));
  EXPECT_TRUE(queue_.HasLost());
  queue_.Resume();
  EXPECT_THAT(TakeAll(), ElementsAre("call 2"));
  queue_.Break();
  queue_.GiveUp(absl::UnavailableError("lost"), /*retries_too=*/true, ended_);
  EXPECT_FALSE(queue_.HasLost());
  EXPECT_EQ(queue_.pending(), 0u);
}

TEST_F(CallQueueTest, PutsLostCallsBackInOrderBeforeTheRest) {
  for (uint64_t number = 1; number <= 4; ++number) {
    Add(number, number == 2 ? 0 : 1);
  }
  for (int i = 0; i < 3; ++i) queue_.Take();
  queue_.Break();
  EXPECT_TRUE(queue_.HasLost());
  queue_.Settle(absl::UnavailableError("lost"), ended_);
  EXPECT_THAT(ended_, SizeIs(1));
  EXPECT_THAT(TakeAll(), ElementsAre("call 1", "call 3", "call 4"));
  queue_.Break();
  queue_.Settle(absl::UnavailableError("lost"), ended_);
  // Call 4 was lost for the first time.
  EXPECT_THAT(TakeAll(), ElementsAre("call 4"));
  EXPECT_EQ(queue_.pending(), 1u);
}

TEST_F(CallQueueTest, SaysWhetherACallMayHaveRun) {
  Add(1, -1);
  Add(2);
  queue_.Take();
  queue_.Break();
  queue_.Settle(absl::OkStatus(), ended_);
  queue_.EndWaiting(absl::NotFoundError(""), absl::AbortedError(""), ended_);
  ASSERT_THAT(ended_, SizeIs(2));
  EXPECT_TRUE(absl::IsAborted(ended_[0].result.status()));
  EXPECT_TRUE(absl::IsNotFound(ended_[1].result.status()));
  EXPECT_EQ(queue_.pending(), 0u);
}

TEST_F(CallQueueTest, CancelsACallWhereverItIs) {
  for (uint64_t number = 1; number <= 4; ++number) Add(number, 1);
  queue_.Take();
  queue_.Take();
  EXPECT_EQ(queue_.Cancel(2).sequence, 2u);
  EXPECT_EQ(queue_.Cancel(2).done, nullptr);
  EXPECT_FALSE(queue_.Cancel(3).sequence.has_value());
  EXPECT_EQ(queue_.Cancel(3).done, nullptr);
  EXPECT_EQ(queue_.Cancel(5).done, nullptr);
  EXPECT_EQ(queue_.Finish(2), nullptr);
  queue_.Break();
  EXPECT_NE(queue_.Cancel(1).done, nullptr);
  queue_.Settle(absl::OkStatus(), ended_);
  EXPECT_THAT(TakeAll(), ElementsAre("call 4"));
  EXPECT_THAT(ended_, IsEmpty());
  EXPECT_EQ(queue_.pending(), 1u);
}

TEST_F(CallQueueTest, ACallThatTakesLongDoesNotCloseTheWindow) {
  Add(1, 1);
  queue_.Take();
  for (uint64_t number = 2; number <= kWindowCalls + 10; ++number) {
    Add(number);
    ASSERT_TRUE(queue_.MayTake());
    const uint64_t sequence = queue_.Take().sequence;
    EXPECT_EQ(sequence, number);
    EXPECT_NE(queue_.Finish(sequence), nullptr);
  }
  EXPECT_EQ(queue_.pending(), 1u);
  EXPECT_EQ(queue_.Cancel(1).sequence, 1u);
  EXPECT_EQ(queue_.Finish(1), nullptr);
  EXPECT_FALSE(queue_.HasSent());
}

TEST_F(CallQueueTest, WhatWasOvertakenIsLostBeforeTheRest) {
  Add(1, 1);
  queue_.Take();
  for (uint64_t number = 2; number <= kWindowCalls + 1; ++number) {
    Add(number);
    queue_.Finish(queue_.Take().sequence);
  }
  Add(kWindowCalls + 2, 1);
  queue_.Take();
  queue_.Break();
  queue_.Settle(absl::OkStatus(), ended_);
  EXPECT_THAT(TakeAll(),
              ElementsAre("call 1", absl::StrCat("call ", kWindowCalls + 2)));
}

TEST_F(CallQueueTest, EndsAllWhereverTheyAre) {
  Add(1, 1);
  queue_.Take();
  queue_.Break();
  Add(2);
  queue_.Take();
  Add(3);
  queue_.EndAll(absl::CancelledError(""), ended_);
  EXPECT_THAT(ended_, SizeIs(3));
  EXPECT_EQ(queue_.pending(), 0u);
}

}  // namespace
}  // namespace cohort::actor
