#include "common/thread_pool.h"

#include <memory>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/mutex.h"
#include "common/real_clock.h"

namespace cohort {
namespace {

using ::testing::ElementsAre;

// Counts to a number on any threads.
class Latch {
 public:
  explicit Latch(int n) : left_(n) {}

  void CountDown() {
    MutexLock lock(mutex_);
    if (--left_ == 0) zero_.SignalAll();
  }
  void Wait() {
    MutexLock lock(mutex_);
    while (left_ > 0) zero_.Wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar zero_;
  int left_ ABSL_GUARDED_BY(mutex_);
};

TEST(ThreadPoolTest, RunsTasksOnItsOwnThreads) {
  ThreadPool pool(2);
  Latch done(100);
  const std::thread::id here = std::this_thread::get_id();
  for (int i = 0; i < 100; ++i) {
    pool.Post([&] {
      EXPECT_NE(std::this_thread::get_id(), here);
      done.CountDown();
    });
  }
  done.Wait();
}

TEST(ThreadPoolTest, RunsAsManyTasksAtOnceAsItHasThreads) {
  ThreadPool pool(3);
  Latch all_in(3);
  Latch done(3);
  for (int i = 0; i < 3; ++i) {
    pool.Post([&] {
      all_in.CountDown();
      all_in.Wait();
      done.CountDown();
    });
  }
  done.Wait();
}

TEST(ThreadPoolTest, ThreadsThatAreNotNeededEnd) {
  ThreadPool pool(4, /*spare_after=*/absl::ZeroDuration());
  EXPECT_EQ(pool.threads(), 0);
  const auto run_at_once = [&pool](int tasks) {
    Latch all_in(tasks);
    Latch done(tasks);
    for (int i = 0; i < tasks; ++i) {
      pool.Post([&] {
        all_in.CountDown();
        all_in.Wait();
        done.CountDown();
      });
    }
    done.Wait();
  };
  run_at_once(4);
  EXPECT_GE(pool.threads(), 2);
  while (pool.threads() > 2) run_at_once(1);
  run_at_once(4);
}

TEST(ThreadPoolTest, RunsTimersInTheOrderTheyAreDue) {
  ThreadPool pool(1);
  std::vector<int> order;
  // Again where this thread stood still for so long that they are due in
  // another order.
  absl::Duration posting;
  do {
    Latch done(3);
    order.clear();
    const auto note = [&](int n) {
      order.push_back(n);
      done.CountDown();
    };
    const absl::Duration start = MonotonicNow();
    pool.PostAfter(absl::Milliseconds(20), [&] { note(3); });
    pool.PostAfter(absl::Milliseconds(10), [&] { note(2); });
    pool.PostAfter(absl::ZeroDuration(), [&] { note(1); });
    posting = MonotonicNow() - start;
    done.Wait();
    EXPECT_GE(MonotonicNow() - start, absl::Milliseconds(20));
  } while (posting >= absl::Milliseconds(10));
  EXPECT_THAT(order, ElementsAre(1, 2, 3));
}

// The thread that finds it due takes what was posted before: it needs another.
TEST(ThreadPoolTest, ATimerThatIsDueWithATaskDoesNotWaitForIt) {
  for (int i = 0; i < 200; ++i) {
    ThreadPool pool(2);
    Latch fired(1);
    Latch done(1);
    pool.PostAfter(absl::Nanoseconds(1), [&] { fired.CountDown(); });
    pool.Post([&] {
      fired.Wait();
      done.CountDown();
    });
    done.Wait();
  }
}

// A watcher of the timers that is handed a task must be replaced.
TEST(ThreadPoolTest, TimersFireWhileAThreadIsBusy) {
  ThreadPool pool(2);
  Latch fired(1);
  Latch done(1);
  pool.PostAfter(absl::Milliseconds(5), [&] { fired.CountDown(); });
  pool.Post([&] {
    fired.Wait();
    done.CountDown();
  });
  done.Wait();
}

TEST(ThreadPoolTest, StopDestroysWhatHasNotStarted) {
  auto held = std::make_shared<int>(0);
  ThreadPool pool(1);
  pool.PostAfter(absl::Hours(1), [held] { FAIL(); });
  pool.PostAfter(absl::InfiniteDuration(), [held] { FAIL(); });
  pool.Stop();
  EXPECT_EQ(held.use_count(), 1);
  pool.Post([held] { FAIL(); });
  pool.PostAfter(absl::Hours(1), [held] { FAIL(); });
  EXPECT_EQ(held.use_count(), 1);
  pool.Stop();
}

TEST(ThreadPoolTest, ATaskMayPost) {
  ThreadPool pool(1);
  Latch done(1);
  pool.Post([&] { pool.Post([&] { done.CountDown(); }); });
  done.Wait();
}

}  // namespace
}  // namespace cohort
