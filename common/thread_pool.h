#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"

#include "common/executor.h"
#include "common/mutex.h"

namespace cohort {

// A fixed number of threads that run tasks, and a timer queue they share.
//
// A daemon has one; its strands stand on it.  Thread-safe.  Outlives every
// strand on it.  Tasks must not throw and must not block for long: the threads
// are few.
class ThreadPool final : public Executor {
 public:
  // Starts `threads` threads.  REQUIRES: threads > 0.
  explicit ThreadPool(int threads);
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

 private:
  // When it is due, then the order of posting.
  using TimerKey = std::pair<absl::Duration, uint64_t>;

  void RunThread();
  // Waits for a task; false when the pool stops.
  bool Next(Task& task);

  Mutex mutex_;
  CondVar changed_;
  std::deque<Task> ready_ ABSL_GUARDED_BY(mutex_);
  std::map<TimerKey, Task> timers_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_timer_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  // One idle thread at a time sleeps until the first timer, the rest until a
  // signal, so that a timer wakes one thread.
  bool timer_watched_ ABSL_GUARDED_BY(mutex_) = false;

  // Constructor and Stop.
  std::vector<std::thread> threads_;
};

}  // namespace cohort
