#pragma once

#include <deque>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"

#include "common/executor.h"
#include "common/mutex.h"

namespace cohort {

// Threads that are made when there is none for a task, up to a number, and
// kept: for tasks that block.  Thread-safe.
class CachedThreadPool final : public Executor {
 public:
  // Beyond `threads_max` tasks wait.  `timers` outlives this.
  CachedThreadPool(int threads_max, Executor& timers)
      : threads_max_(threads_max), timers_(timers) {}
  // Destroys what has not started, waits for what has.  REQUIRES: not in a task
  // of this pool, and nothing is posted any more.
  ~CachedThreadPool() override;

  CachedThreadPool(const CachedThreadPool&) = delete;
  CachedThreadPool& operator=(const CachedThreadPool&) = delete;

  void Post(Task task) override;
  // In a task of `timers` it is posted here.
  void PostAfter(absl::Duration delay, Task task) override;

 private:
  void RunThread();
  // Waits for a task; false when the pool ends.
  bool Next(Task& task);

  const int threads_max_;
  Executor& timers_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<Task> ready_ ABSL_GUARDED_BY(mutex_);
  size_t idle_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort
