#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

#include "common/executor.h"
#include "common/mutex.h"

namespace cohort {

// Threads that run tasks, and a timer queue they share.
//
// A thread is made when all others are busy, up to a number, and ends when a
// while has passed in which it was not needed.  A daemon has one pool; its
// strands stand on it.  Thread-safe.  Outlives every strand on it.  Tasks must
// not throw, nor block for long where others wait for a thread.
class ThreadPool final : public Executor {
 public:
  // Beyond `threads_max` tasks wait.  REQUIRES: threads_max > 0.  The default
  // is long beside the times between a daemon's timers.
  explicit ThreadPool(int threads_max,
                      absl::Duration spare_after = absl::Seconds(5));
  // Stops.
  ~ThreadPool() override;

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  void Post(Task task) override;
  // On the monotonic clock of the machine.
  void PostAfter(absl::Duration delay, Task task) override;

  // Destroys what has not started, waits for what has, joins the threads.  A
  // second call does nothing.  REQUIRES: not called from a task of this pool.
  void Stop();

  // How many there are now.
  size_t threads();

 private:
  using Threads = std::list<std::thread>;
  // When it is due, then the order of posting.
  using TimerKey = std::pair<absl::Duration, uint64_t>;

  // Lets a thread that has nothing else to do look at what has changed; one is
  // made for it if there are fewer than `idle`.
  void Wake(size_t idle) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunThread(Threads::iterator self);
  // Waits for a task; false when the thread ends.
  bool Next(Threads::iterator self, Task& task);
  // Whether `self`, which is idle, ends.
  bool IsSpare(Threads::iterator self) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t threads_max_;
  const absl::Duration spare_after_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<Task> ready_ ABSL_GUARDED_BY(mutex_);
  std::map<TimerKey, Task> timers_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_timer_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  // One idle thread at a time sleeps until the first timer, the rest until a
  // signal, so that a timer wakes one thread.
  bool timer_watched_ ABSL_GUARDED_BY(mutex_) = false;

  Threads threads_ ABSL_GUARDED_BY(mutex_);
  std::thread ended_ ABSL_GUARDED_BY(mutex_);  // the last one, to be joined
  size_t idle_ ABSL_GUARDED_BY(mutex_) = 0;
  // The least of `idle_` while a task ran, since then.
  size_t fewest_idle_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Duration since_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort
