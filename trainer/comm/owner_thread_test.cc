#include "trainer/comm/owner_thread.h"

#include <atomic>
#include <string>
#include <thread>
#include <utility>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/latch.h"
#include "common/real_clock.h"
#include "common/testing/status_matchers.h"

namespace cohort::trainer {
namespace {

using ::testing::HasSubstr;

absl::Duration In(absl::Duration time) { return MonotonicNow() + time; }

absl::Status Fine() { return absl::OkStatus(); }

// Counts what the thread was asked for at its end.
struct Ends {
  std::atomic<int> quiet{0};
  std::atomic<int> close{0};
  std::atomic<int> kills{0};
  std::string hangs_in;  // set before kills
  Latch killed;

  OwnerThread::Options Options() {
    return {.quiet = [this](OwnerThread&) { ++quiet; },
            .close = [this](OwnerThread&) { ++close; },
            .kill =
                [this](absl::string_view in) {
                  hangs_in = std::string(in);
                  ++kills;
                  killed.Open();
                }};
  }
};

TEST(OwnerThreadTest, DoesWorkInOrderAndAnswers) {
  Ends ends;
  {
    OwnerThread owner(ends.Options());
    std::atomic<int> last{0};
    const auto first = owner.Post([&](OwnerThread&) {
      last = 1;
      return absl::OkStatus();
    });
    const auto second = owner.Post([&](OwnerThread&) {
      return absl::InternalError(last.exchange(2) == 1 ? "after" : "before");
    });
    EXPECT_THAT(owner.Await(*second, In(absl::Minutes(1)), Fine),
                StatusIs(absl::StatusCode::kInternal, "after"));
    EXPECT_THAT(owner.Await(*first, In(absl::Minutes(1)), Fine), IsOk());
    EXPECT_THAT(owner.ended(), IsOk());
    EXPECT_EQ(ends.quiet, 0);
  }
  EXPECT_EQ(ends.quiet, 1);
  EXPECT_EQ(ends.close, 1);
  EXPECT_EQ(ends.kills, 0);
}

TEST(OwnerThreadTest, WaitsAsLongAsItIsToldTo) {
  Ends ends;
  Latch go;
  OwnerThread owner(ends.Options());
  const auto job = owner.Post([&go](OwnerThread&) {
    go.Wait();
    return absl::OkStatus();
  });
  EXPECT_THAT(owner.Await(*job, In(absl::Milliseconds(30)), Fine),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  const auto gone = [] { return absl::AbortedError("rank 3 is gone"); };
  EXPECT_THAT(owner.Await(*job, In(absl::Minutes(1)), gone),
              StatusIs(absl::StatusCode::kAborted, "rank 3 is gone"));
  go.Open();
  EXPECT_THAT(owner.Await(*job, In(absl::Minutes(1)), gone), IsOk())
      << "what is done is done";
}

TEST(OwnerThreadTest, EndsAllWaitsAtOnceWhateverItIsIn) {
  Ends ends;
  Latch began;
  Latch go;
  {
    OwnerThread owner(ends.Options());
    const auto hanging = owner.Post([&began, &go](OwnerThread&) {
      began.Open();
      go.Wait();
      return absl::OkStatus();
    });
    const auto behind = owner.Post([](OwnerThread&) { return Fine(); });
    began.Wait();
    std::thread ender([&owner] {
      owner.End("revoked");
      owner.End("again");
    });
    const auto revoked = StatusIs(absl::StatusCode::kAborted, "revoked");
    EXPECT_THAT(owner.Await(*hanging, In(absl::Minutes(1)), Fine), revoked);
    EXPECT_THAT(owner.Await(*behind, In(absl::Minutes(1)), Fine), revoked);
    ender.join();
    const auto late = owner.Post([](OwnerThread&) { return Fine(); });
    EXPECT_THAT(owner.Await(*late, In(absl::Minutes(1)), Fine), revoked);
    EXPECT_EQ(ends.quiet, 0) << "it hangs";
    go.Open();
  }
  EXPECT_EQ(ends.quiet, 1);
  EXPECT_EQ(ends.close, 1);
}

TEST(OwnerThreadTest, AsksToKillWhatDoesNotBecomeQuietInTime) {
  Ends ends;
  Latch began;
  Latch go;
  OwnerThread::Options options = ends.Options();
  options.deadline = absl::Milliseconds(50);
  OwnerThread owner(std::move(options));
  owner.Post([&began, &go](OwnerThread& own) {
    own.SetCall("ncclAllReduce");
    began.Open();
    go.Wait();
    return absl::OkStatus();
  });
  began.Wait();
  owner.End("revoked");
  ASSERT_TRUE(ends.killed.WaitFor(absl::Seconds(20)));
  EXPECT_EQ(ends.hangs_in, "ncclAllReduce");
  go.Open();
}

TEST(OwnerThreadTest, AsksToKillWhatDoesNotCloseInTime) {
  Ends ends;
  Latch go;
  OwnerThread::Options options = ends.Options();
  options.leave = absl::Milliseconds(50);
  options.close = [&go](OwnerThread& own) {
    own.SetCall("cuMemFree");
    go.Wait();
  };
  options.kill = [&ends, &go](absl::string_view in) {
    ends.hangs_in = std::string(in);
    go.Open();
  };
  { OwnerThread owner(std::move(options)); }
  EXPECT_EQ(ends.hangs_in, "cuMemFree");
}

// What did not fail may take longer than what did.
TEST(OwnerThreadTest, AsksToKillNobodyWhoTakesItsTimeWithoutAFault) {
  Ends ends;
  OwnerThread::Options options = ends.Options();
  options.deadline = absl::ZeroDuration();
  options.leave = absl::Minutes(10);
  const auto take_time = [&ends](OwnerThread&) {
    ends.killed.WaitFor(absl::Milliseconds(30));
  };
  options.quiet = take_time;
  options.close = take_time;
  { OwnerThread owner(std::move(options)); }
  EXPECT_EQ(ends.kills, 0);
}

TEST(OwnerThreadTest, HasNoMoreTimeToCloseThanToBeQuietAfterAFault) {
  Ends ends;
  OwnerThread::Options options = ends.Options();
  options.deadline = absl::Milliseconds(20);
  options.leave = absl::Minutes(10);
  options.close = [&ends](OwnerThread&) { ends.killed.Wait(); };
  {
    OwnerThread owner(std::move(options));
    owner.End("revoked");
  }
  EXPECT_EQ(ends.kills, 1);
}

TEST(OwnerThreadTest, PausesUntilTheEnd) {
  Ends ends;
  OwnerThread owner(ends.Options());
  const auto job = owner.Post([](OwnerThread& own) {
    while (!own.is_ending()) own.Pause(absl::Seconds(10));
    return own.ended();
  });
  owner.End("enough");
  EXPECT_THAT(owner.Await(*job, In(absl::Minutes(1)), Fine),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("enough")));
}

}  // namespace
}  // namespace cohort::trainer
