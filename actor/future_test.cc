#include "actor/future.h"

#include <atomic>
#include <list>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "actor/call_target.h"
#include "actor/codec.h"
#include "actor/wait.h"
#include "common/latch.h"
#include "common/status_util.h"
#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"
#include "common/thread_pool.h"

namespace cohort {
namespace {

using actor::Promise;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(FutureTest, OfAValueOrAStatusIsReady) {
  const Future<int> five = 5;
  EXPECT_TRUE(five.IsReady());
  EXPECT_THAT(five.Get(), IsOkAndHolds(5));
  const Future<std::string> text = "text";
  EXPECT_THAT(text.Get(), IsOkAndHolds("text"));
  const Future<int> error = absl::NotFoundError("no");
  EXPECT_THAT(error.Get(), StatusIs(absl::StatusCode::kNotFound));
  const Future<int> result(absl::StatusOr<int>(6));
  EXPECT_THAT(result.Get(), IsOkAndHolds(6));
  const Future<void> done = absl::OkStatus();
  COHORT_EXPECT_OK(done.Get());
}

TEST(FutureTest, OfNoCallSaysSo) {
  const Future<int> none;
  EXPECT_TRUE(none.IsReady());
  EXPECT_THAT(none.Get(), StatusIs(absl::StatusCode::kFailedPrecondition));
  none.Cancel();
  EXPECT_THAT(none.Then([](absl::StatusOr<int> n) { return n; }).Get(),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(FutureTest, HoldsWhatThePromiseIsGiven) {
  Promise<std::string> promise;
  const Future<std::string> future = promise.future();
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): the subject
  const Future<std::string> copy = future;
  EXPECT_FALSE(future.IsReady());
  std::move(promise).CompleteWithBytes(*EncodeValue(std::string("abc")));
  EXPECT_TRUE(copy.IsReady());
  EXPECT_THAT(future.Get(), IsOkAndHolds("abc"));
  EXPECT_THAT(copy.Get(), IsOkAndHolds("abc"));
}

TEST(FutureTest, KeepsTheReasonOfAnError) {
  Promise<int> promise;
  const Future<int> future = promise.future();
  std::move(promise).CompleteWithBytes(
      SetReason(absl::UnavailableError("gone"), kReasonMayHaveRun));
  EXPECT_EQ(GetReason(future.Get().status()), kReasonMayHaveRun);
}

TEST(FutureTest, SaysThatAResultIsOfAnotherType) {
  Promise<int> promise;
  const Future<int> future = promise.future();
  std::move(promise).CompleteWithBytes(std::string("abcdef"));
  EXPECT_THAT(future.Get(), StatusIs(absl::StatusCode::kInternal));
  EXPECT_EQ(GetReason(future.Get().status()), kReasonBadResult);
}

TEST(FutureTest, MovesOutWhatCannotBeCopied) {
  Future<std::unique_ptr<int>> ready = std::make_unique<int>(4);
  EXPECT_EQ(**std::move(ready).Get(), 4);
  // NOLINTNEXTLINE(bugprone-use-after-move): a future stays valid
  EXPECT_THAT(std::move(ready).Get(),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  // Of bytes there is always another one.
  Promise<std::unique_ptr<int>> promise;
  Future<std::unique_ptr<int>> future = promise.future();
  std::move(promise).CompleteWithBytes(EncodeValue(std::make_unique<int>(5)));
  EXPECT_EQ(**std::move(future).Get(), 5);
  // NOLINTNEXTLINE(bugprone-use-after-move): a future stays valid
  EXPECT_EQ(**std::move(future).Get(), 5);
}

TEST(FutureTest, LeavesTheValueToOtherCopies) {
  Future<std::string> future = std::string(100, 'x');
  const Future<std::string> copy = future;
  EXPECT_EQ(std::move(future).Get()->size(), 100u);
  EXPECT_EQ(copy.Get()->size(), 100u);
}

TEST(FutureTest, WaitsForAnotherThread) {
  Promise<int> promise;
  const Future<int> future = promise.future();
  std::thread thread(
      [&promise] { std::move(promise).CompleteWithBytes(EncodeValue(3)); });
  EXPECT_THAT(future.Get(), IsOkAndHolds(3));
  thread.join();
}

TEST(FutureTest, StaysValidAfterADeadline) {
  Promise<int> promise;
  const Future<int> future = promise.future();
  for (const absl::Duration timeout :
       {-absl::Seconds(1), absl::ZeroDuration(), absl::Milliseconds(1)}) {
    const absl::Status late = future.Get(timeout).status();
    EXPECT_THAT(late, StatusIs(absl::StatusCode::kDeadlineExceeded));
    EXPECT_EQ(GetReason(late), kReasonDeadline);
  }
  std::move(promise).Complete(8);
  EXPECT_THAT(future.Get(absl::ZeroDuration()), IsOkAndHolds(8));
}

TEST(FutureTest, EndsWhenItsPromiseIsDropped) {
  Future<int> future;
  {
    const Promise<int> promise;
    future = promise.future();
  }
  EXPECT_THAT(future.Get(), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(GetReason(future.Get().status()), kReasonCancelled);
}

TEST(FutureTest, RunsWhatFollows) {
  Promise<int> promise;
  const Future<int> number = promise.future();
  const Future<std::string> text =
      number.Then([](absl::StatusOr<int> n) { return std::to_string(*n); });
  const Future<void> end = text.Then(
      [](const absl::StatusOr<std::string>& word) { return word.status(); });
  int runs = 0;
  const Future<void> counted =
      end.Then([&runs](const absl::Status&) { ++runs; });
  EXPECT_FALSE(counted.IsReady());
  std::move(promise).CompleteWithBytes(EncodeValue(12));
  EXPECT_THAT(text.Get(), IsOkAndHolds("12"));
  COHORT_EXPECT_OK(counted.Get());
  EXPECT_EQ(runs, 1);
  EXPECT_THAT(number.Get(), IsOkAndHolds(12));
}

TEST(FutureTest, WhatFollowsCannotWaitInTheThreadThatBringsResults) {
  actor::Promise<int> promise;
  actor::Promise<int> other;
  const Future<int> later = other.future();
  const Future<int> sum = promise.future().Then(
      [later](const absl::StatusOr<int>& n) -> absl::StatusOr<int> {
        const absl::StatusOr<int> more = later.Get();
        if (!more.ok()) return more.status();
        return *n + *more;
      });
  std::move(promise).Complete(1);
  EXPECT_THAT(sum.Get(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                  HasSubstr("give Then an executor")));
}

TEST(FutureTest, ADeadlineSaysWhatTheCallWaitsFor) {
  class Waiting final : public actor::CallCarrier {
   public:
    void Cancel(uint64_t /*call*/) override {}
    std::string WaitReason(uint64_t call) const override {
      return call == 7 ? "actor A waits: no room" : "";
    }
  };
  actor::Promise<int> promise;
  const Future<int> future = promise.future();
  actor::FutureAccess::State(future)->CancelsCall(std::make_shared<Waiting>(),
                                                  7);
  const Future<int> after =
      future.Then([](const absl::StatusOr<int>& n) { return n; });
  for (const Future<int>& each : {future, after}) {
    EXPECT_THAT(each.Get(absl::Milliseconds(1)),
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         "no result within 1ms: actor A waits: no room"));
  }
  EXPECT_TRUE(actor::IsNewsOfWait("actor A waits: no room"));
  EXPECT_FALSE(actor::IsNewsOfWait("actor A waits: for another reason"));
  EXPECT_TRUE(actor::IsNewsOfWait("actor B waits: no room"));
}

TEST(FutureTest, NamesTheTypeOfAnExceptionThatSaysNothing) {
  const Future<int> thrown =
      Future<int>(1).Then([](const absl::StatusOr<int>& /*n*/) -> int {
        throw std::runtime_error("");  // NOLINT(cohort-throw): a user's
      });
  EXPECT_THAT(thrown.Get(),
              StatusIs(absl::StatusCode::kUnknown,
                       "an exception of type std::runtime_error"));
}

TEST(FutureTest, RunsWhatFollowsAtOnceWhenItIsReady) {
  const Future<int> five = 5;
  EXPECT_THAT(five.Then([](absl::StatusOr<int> n) { return *n + 1; }).Get(),
              IsOkAndHolds(6));
  EXPECT_THAT(five.Get(), IsOkAndHolds(5));
}

TEST(FutureTest, BecomesTheFutureThatAFunctionReturned) {
  Promise<int> inner;
  Future<int> inner_future = inner.future();
  const Future<int> outer = Future<int>(1).Then(
      [&inner_future](const absl::StatusOr<int>&) { return inner_future; });
  EXPECT_FALSE(outer.IsReady());
  std::move(inner).Complete(9);
  EXPECT_THAT(outer.Get(), IsOkAndHolds(9));
}

TEST(FutureTest, TurnsWhatAFunctionThrowsIntoAStatus) {
  const Future<int> failed =
      Future<int>(1).Then([](const absl::StatusOr<int>&) -> int {
        throw std::runtime_error("bad");  // NOLINT(cohort-throw): a user's
      });
  EXPECT_THAT(failed.Get(), StatusIs(absl::StatusCode::kUnknown, "bad"));
  const Future<int> nested =
      Future<int>(1).Then([](const absl::StatusOr<int>&) -> Future<int> {
        throw std::runtime_error("bad");  // NOLINT(cohort-throw): a user's
      });
  EXPECT_EQ(GetReason(nested.Get().status()), kReasonException);
}

TEST(FutureTest, RunsWhatFollowsInAnExecutor) {
  ManualExecutor executor;
  Promise<int> promise;
  const Future<int> next = promise.future().Then(
      executor, [](absl::StatusOr<int> n) { return *n + 1; });
  std::move(promise).Complete(1);
  EXPECT_FALSE(next.IsReady());
  executor.RunUntilIdle();
  EXPECT_THAT(next.Get(), IsOkAndHolds(2));
}

TEST(FutureTest, IsCancelledByAnExecutorThatStops) {
  Future<int> next;
  {
    ManualExecutor executor;
    next =
        Future<int>(1).Then(executor, [](absl::StatusOr<int> n) { return *n; });
  }
  EXPECT_EQ(GetReason(next.Get().status()), kReasonCancelled);
}

// Remembers what was cancelled.
class CancelledCalls final : public actor::CallTarget {
 public:
  uint64_t Call(actor::CalledMethod /*method*/, std::string /*arguments*/,
                Done /*done*/) override {
    return 0;
  }
  void Cancel(uint64_t call) override { calls.push_back(call); }
  void ForceCancel(uint64_t call) override { forced.push_back(call); }

  std::vector<uint64_t> calls;
  std::vector<uint64_t> forced;
};

TEST(FutureTest, CancelsItsCallUntilThatHasEnded) {
  const auto target = std::make_shared<CancelledCalls>();
  Promise<int> promise;
  const Future<int> future = promise.future();
  actor::FutureAccess::State(future)->CancelsCall(target, 7);
  const Future<int> next = future.Then([](absl::StatusOr<int> n) { return n; });
  next.Cancel();
  EXPECT_THAT(target->calls, ElementsAre(7u));
  // It may end by that, and is to be ended by force all the same.
  std::move(promise).Complete(1);
  next.Cancel(CancelMode::kForce);
  EXPECT_THAT(target->calls, ElementsAre(7u));
  EXPECT_THAT(target->forced, ElementsAre(7u));
}

TEST(FutureTest, DoesNotCancelACallThatHasEnded) {
  const auto target = std::make_shared<CancelledCalls>();
  Promise<int> promise;
  const Future<int> future = promise.future();
  actor::FutureAccess::State(future)->CancelsCall(target, 7);
  const Future<int> next = future.Then([](absl::StatusOr<int> n) { return n; });
  std::move(promise).Complete(1);
  EXPECT_EQ(target.use_count(), 1) << "an ended call needs no target";
  next.Cancel();
  future.Cancel(CancelMode::kForce);
  EXPECT_THAT(target->calls, IsEmpty());
  EXPECT_THAT(target->forced, IsEmpty());
}

TEST(FutureTest, IsSmall) {
  EXPECT_LE(sizeof(actor::FutureValue<int>), 256u);
  EXPECT_LE(sizeof(Future<int>), 16u);
}

TEST(WaitTest, WaitsForAll) {
  std::vector<Promise<int>> promises(3);
  std::list<Future<int>> futures;
  for (const Promise<int>& promise : promises) {
    futures.push_back(promise.future());
  }
  std::move(promises[0]).Complete(0);
  const absl::Status late = WaitAll(futures, absl::Milliseconds(1));
  EXPECT_EQ(GetReason(late), kReasonDeadline);
  std::move(promises[2]).Complete(absl::AbortedError("no"));
  std::thread thread([&promises] { std::move(promises[1]).Complete(1); });
  COHORT_EXPECT_OK(WaitAll(futures));
  thread.join();
  COHORT_EXPECT_OK(WaitAll(std::vector<Future<int>>()));
}

TEST(WaitTest, WaitsForAny) {
  std::vector<Promise<int>> promises(3);
  std::vector<Future<int>> futures;
  for (const Promise<int>& promise : promises) {
    futures.push_back(promise.future());
  }
  EXPECT_EQ(GetReason(WaitAny(futures, absl::Milliseconds(1)).status()),
            kReasonDeadline);
  std::thread thread([&promises] { std::move(promises[1]).Complete(1); });
  EXPECT_THAT(WaitAny(futures), IsOkAndHolds(1u));
  thread.join();
  std::move(promises[0]).Complete(1);
  EXPECT_THAT(WaitAny(futures, absl::ZeroDuration()), IsOkAndHolds(0u));
  EXPECT_THAT(WaitAny(std::vector<Future<int>>()),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(WaitTest, WaitsForAnyOfFuturesThatAreTheSame) {
  Promise<int> promise;
  const std::vector<Future<int>> futures(3, promise.future());
  EXPECT_FALSE(WaitAny(futures, absl::Milliseconds(1)).ok());
  std::thread thread([&promise] { std::move(promise).Complete(1); });
  EXPECT_THAT(WaitAny(futures), IsOkAndHolds(0u));
  thread.join();
}

TEST(WaitTest, GetsAllInTheirOrder) {
  EXPECT_THAT(GetAll(std::vector<Future<int>>{1, 2, 3}),
              IsOkAndHolds(std::vector<int>{1, 2, 3}));
  const std::vector<Future<int>> one_failed = {1, absl::AbortedError("no")};
  EXPECT_THAT(GetAll(one_failed), StatusIs(absl::StatusCode::kAborted));
  COHORT_EXPECT_OK(GetAll(std::vector<Future<void>>{absl::OkStatus()}));
  EXPECT_THAT(GetAll(std::vector<Future<void>>{absl::AbortedError("no")}),
              StatusIs(absl::StatusCode::kAborted));
  std::vector<Future<std::unique_ptr<int>>> owned;
  owned.emplace_back(std::make_unique<int>(4));
  const auto numbers = GetAll(std::move(owned));
  COHORT_ASSERT_OK(numbers);
  EXPECT_EQ(*numbers->at(0), 4);
}

// Threads that complete, follow and wait for the same futures.
TEST(FutureThreadsTest, LoseNothing) {
  constexpr int kFutures = 2000;
  ThreadPool pool(3);
  std::vector<Future<int>> followed;
  std::atomic<int> sum{0};
  for (int i = 0; i < kFutures; ++i) {
    Promise<int> promise;
    const Future<int> future = promise.future();
    pool.Post([promise = std::move(promise), i]() mutable {
      std::move(promise).CompleteWithBytes(EncodeValue(i));
    });
    followed.push_back(future.Then([&sum](absl::StatusOr<int> n) {
      sum += *n;
      return *n;
    }));
    if (i % 3 == 0) {
      EXPECT_THAT(future.Get(), IsOkAndHolds(i));
    }
    if (i % 5 == 0) {
      COHORT_EXPECT_OK(WaitAny(std::vector<Future<int>>{
          future, followed[static_cast<size_t>(i) / 2]}));
    }
  }
  COHORT_EXPECT_OK(WaitAll(followed));
  EXPECT_EQ(sum, kFutures * (kFutures - 1) / 2);
  pool.Stop();
}

TEST(FutureThreadsTest, MayBeWaitedForByMany) {
  Promise<int> promise;
  const Future<int> future = promise.future();
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&future, &right] {
      while (!future.Get(absl::Microseconds(50)).ok()) {
      }
      if (*future.Get() == 5) ++right;
    });
  }
  std::move(promise).Complete(5);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 4);
}

}  // namespace
}  // namespace cohort
