#include "common/cached_thread_pool.h"

#include <set>
#include <thread>

#include "gtest/gtest.h"

#include "common/mutex.h"
#include "common/thread_pool.h"

namespace cohort {
namespace {

// Tasks that wait until a number of them run at once.
class Meeting {
 public:
  explicit Meeting(int members) : awaited_(members) {}

  void Join() {
    MutexLock lock(mutex_);
    threads_.insert(std::this_thread::get_id());
    --awaited_;
    changed_.SignalAll();
    while (awaited_ > 0) changed_.Wait(mutex_);
  }
  void Await() {
    MutexLock lock(mutex_);
    while (awaited_ > 0) changed_.Wait(mutex_);
  }
  size_t threads() {
    MutexLock lock(mutex_);
    return threads_.size();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int awaited_ ABSL_GUARDED_BY(mutex_);
  std::set<std::thread::id> threads_ ABSL_GUARDED_BY(mutex_);
};

TEST(CachedThreadPoolTest, TasksThatWaitForEachOtherEachHaveAThread) {
  ThreadPool timers(1);
  Meeting meeting(3);
  CachedThreadPool pool(3, timers);
  for (int i = 0; i < 3; ++i) pool.Post([&meeting] { meeting.Join(); });
  meeting.Await();
  EXPECT_EQ(meeting.threads(), 3);
}

TEST(CachedThreadPoolTest, WaitsForAThreadBeyondTheMost) {
  ThreadPool timers(1);
  Meeting first(1);
  Meeting second(1);
  CachedThreadPool pool(1, timers);
  pool.Post([&first] { first.Join(); });
  pool.Post([&second] { second.Join(); });
  first.Await();
  second.Await();
}

TEST(CachedThreadPoolTest, RunsAfterADelay) {
  ThreadPool timers(1);
  Meeting meeting(1);
  CachedThreadPool pool(2, timers);
  pool.PostAfter(absl::Milliseconds(1), [&meeting] { meeting.Join(); });
  meeting.Await();
}

}  // namespace
}  // namespace cohort
