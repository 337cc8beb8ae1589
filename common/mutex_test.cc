#include "common/mutex.h"

#include "gtest/gtest.h"

#include "common/real_clock.h"
#include "common/thread_pool.h"

namespace cohort {
namespace {

struct Shared {
  Mutex mutex;
  CondVar changed;
  int n ABSL_GUARDED_BY(mutex) = 0;
};

TEST(CondVarTest, WakesWhoWaits) {
  Shared shared;
  ThreadPool pool(1);
  pool.Post([&] {
    MutexLock lock(shared.mutex);
    shared.n = 1;
    shared.changed.Signal();
  });
  MutexLock lock(shared.mutex);
  while (shared.n == 0) shared.changed.Wait(shared.mutex);
  EXPECT_EQ(shared.n, 1);
}

TEST(CondVarTest, SaysWhenTheTimeIsUp) {
  Shared shared;
  MutexLock lock(shared.mutex);
  EXPECT_FALSE(shared.changed.WaitFor(shared.mutex, absl::ZeroDuration()));
  EXPECT_FALSE(shared.changed.WaitUntil(shared.mutex,
                                        MonotonicNow() - absl::Seconds(1)));
}

TEST(CondVarTest, TakesForeverAsADeadline) {
  Shared shared;
  ThreadPool pool(1);
  pool.Post([&] {
    MutexLock lock(shared.mutex);
    shared.n = 1;
    shared.changed.SignalAll();
  });
  MutexLock lock(shared.mutex);
  while (shared.n == 0) {
    shared.changed.WaitFor(shared.mutex, absl::InfiniteDuration());
  }
}

TEST(MutexTest, TryLockFailsWhenHeldElsewhere) {
  Mutex mutex;
  bool taken = true;
  {
    MutexLock lock(mutex);
    ThreadPool pool(1);
    Shared done;
    pool.Post([&] {
      if (mutex.TryLock()) {
        mutex.Unlock();
      } else {
        taken = false;
      }
      MutexLock done_lock(done.mutex);
      done.n = 1;
      done.changed.Signal();
    });
    MutexLock done_lock(done.mutex);
    while (done.n == 0) done.changed.Wait(done.mutex);
  }
  EXPECT_FALSE(taken);
}

}  // namespace
}  // namespace cohort
