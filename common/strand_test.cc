#include "common/strand.h"

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/mutex.h"
#include "common/testing/manual_executor.h"
#include "common/thread_pool.h"

namespace cohort {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Counter {
 public:
  explicit Counter(Executor& executor) : strand_(executor) {}

  void Add() {
    strand_.Post([this] {
      strand_.AssertHeld();
      ++n_;
    });
  }
  void AddInline() {
    strand_.Dispatch([this] {
      strand_.AssertHeld();
      ++n_;
    });
  }
  int Read() {
    strand_.Drain();
    strand_.Stop();
    return ReadStopped();
  }

 private:
  // Nothing else runs any more, which the analysis cannot know.
  int ReadStopped() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return n_; }

  Strand strand_;
  int n_ ABSL_GUARDED_BY(strand_) = 0;
};

// ST-1.
TEST(StrandTest, RunsTasksOfManyThreadsWithoutOverlap) {
  ThreadPool pool(4);
  Counter counter(pool);
  ThreadPool posters(4);
  Mutex mutex;
  CondVar changed;
  int done = 0;
  for (int i = 0; i < 4; ++i) {
    posters.Post([&] {
      for (int j = 0; j < 5000; ++j) counter.Add();
      MutexLock lock(mutex);
      ++done;
      changed.Signal();
    });
  }
  {
    MutexLock lock(mutex);
    while (done < 4) changed.Wait(mutex);
  }
  EXPECT_EQ(counter.Read(), 20000);
}

// ST-1.
TEST(StrandTest, KeepsTheOrderOfPosting) {
  ThreadPool pool(3);
  Strand strand(pool);
  std::vector<int> seen;
  for (int i = 0; i < 1000; ++i) {
    strand.Post([&seen, i] { seen.push_back(i); });
  }
  strand.Drain();
  ASSERT_EQ(seen.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(seen[i], i);
}

TEST(StrandTest, NeverRunsATaskInline) {
  ManualExecutor executor;
  Strand strand(executor);
  bool ran = false;
  strand.Post([&] { ran = true; });
  EXPECT_FALSE(ran);
  executor.RunUntilIdle();
  EXPECT_TRUE(ran);
}

TEST(StrandTest, DrainWaitsForWhatTasksPost) {
  ThreadPool pool(2);
  Strand strand(pool);
  int n = 0;
  strand.Post([&] { strand.Post([&] { strand.Post([&] { n = 3; }); }); });
  strand.Drain();
  EXPECT_EQ(n, 3);
}

TEST(StrandTest, LetsOthersRunBetweenItsTurns) {
  ManualExecutor executor;
  Strand busy(executor);
  int batches = 0;
  std::function<void()> again = [&] {
    if (++batches < 100) busy.Post([&] { again(); });
  };
  busy.Post([&] { again(); });
  int before_other = 0;
  executor.Post([&] { before_other = batches; });
  executor.RunUntilIdle();
  EXPECT_GT(before_other, 0);
  EXPECT_LT(before_other, 10);
  EXPECT_EQ(batches, 100);
}

// ST-4.
TEST(StrandTest, DispatchRunsInlineOnlyWhenNothingIsAhead) {
  ManualExecutor executor;
  Strand strand(executor);
  std::vector<int> order;
  strand.Dispatch([&] {
    strand.AssertHeld();
    strand.Dispatch([&] { order.push_back(2); });  // its own task is ahead
    order.push_back(1);
  });
  EXPECT_THAT(order, ElementsAre(1));
  strand.Dispatch([&] { order.push_back(3); });
  EXPECT_THAT(order, ElementsAre(1));
  executor.RunUntilIdle();
  EXPECT_THAT(order, ElementsAre(1, 2, 3));
  strand.Stop();
  strand.Dispatch([] { FAIL(); });
}

// ST-1.
TEST(StrandTest, DispatchedAndPostedTasksDoNotOverlap) {
  ThreadPool pool(2);
  Counter counter(pool);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&counter, i] {
      for (int j = 0; j < 5000; ++j) {
        if ((i + j) % 2 == 0) {
          counter.Add();
        } else {
          counter.AddInline();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter.Read(), 20000);
}

TEST(StrandTest, RunsTimersOnTheStrandAtTheirTime) {
  ManualExecutor executor;
  Strand strand(executor);
  std::vector<int> order;
  strand.PostAfter(absl::Seconds(2), [&] {
    strand.AssertHeld();
    order.push_back(2);
  });
  strand.PostAfter(absl::Seconds(1), [&] { order.push_back(1); });
  executor.AdvanceBy(absl::Milliseconds(999));
  EXPECT_THAT(order, IsEmpty());
  executor.AdvanceBy(absl::Milliseconds(1));
  EXPECT_THAT(order, ElementsAre(1));
  executor.AdvanceBy(absl::Seconds(1));
  EXPECT_THAT(order, ElementsAre(1, 2));
}

// ST-3.
TEST(StrandTest, StopDestroysWhatIsQueued) {
  ManualExecutor executor;
  Strand strand(executor);
  auto held = std::make_shared<int>(0);
  strand.Post([held] { FAIL(); });
  strand.Stop();
  EXPECT_EQ(held.use_count(), 1);
  strand.Post([held] { FAIL(); });
  EXPECT_EQ(held.use_count(), 1);
  executor.RunUntilIdle();
}

// ST-2.
TEST(StrandTest, StopDestroysTimersBeforeTheirTime) {
  ManualExecutor executor;
  auto held = std::make_shared<int>(0);
  {
    Strand strand(executor);
    strand.PostAfter(absl::Hours(1), [held] { FAIL(); });
    strand.Stop();
    EXPECT_EQ(held.use_count(), 1);
    strand.PostAfter(absl::Hours(1), [held] { FAIL(); });
    EXPECT_EQ(held.use_count(), 1);
  }
  executor.AdvanceBy(absl::Hours(2));
}

// ST-3.
TEST(StrandTest, StopFromATaskMakesItTheLast) {
  ThreadPool pool(2);
  auto held = std::make_shared<int>(0);
  std::atomic<int> ran = 0;
  {
    Strand strand(pool);
    strand.Post([&] {
      strand.Stop();
      ++ran;
    });
    for (int i = 0; i < 100; ++i) {
      strand.Post([&ran, held] { ++ran; });
    }
    strand.Drain();
    strand.Stop();
    EXPECT_EQ(held.use_count(), 1);
  }
  EXPECT_LE(ran, 1);
}

// ST-3.
TEST(StrandTest, StopWaitsForTheTaskThatRuns) {
  ThreadPool pool(2);
  for (int round = 0; round < 200; ++round) {
    auto owned = std::make_unique<int>(0);
    Strand strand(pool);
    for (int i = 0; i < 10; ++i) {
      strand.Post([&owned] { ++*owned; });
    }
    strand.Stop();
    owned.reset();  // A task still running would be a use after free.
  }
}

TEST(StrandTest, DrainReturnsWhenItsExecutorStopped) {
  ThreadPool pool(1);
  Strand strand(pool);
  pool.Stop();
  strand.Post([] { FAIL(); });
  strand.Drain();
}

TEST(StrandDeathTest, AssertHeldCrashesElsewhere) {
  ManualExecutor executor;
  Strand strand(executor);
  Strand other(executor);
  EXPECT_DEATH(strand.AssertHeld(), "not on the strand");
  EXPECT_DEATH(
      {
        other.Post([&] { strand.AssertHeld(); });
        executor.RunUntilIdle();
      },
      "not on the strand");
}

}  // namespace
}  // namespace cohort
