#pragma once

#include <deque>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"

#include "actor/call_limits.h"
#include "actor/wait_observer.h"
#include "common/executor.h"
#include "common/mutex.h"
#include "common/thread_pool.h"

namespace cohort::actor {

// TooManyWait: RESOURCE_EXHAUSTED, kReasonQueueFull.
absl::Status TooManyWait(int waiting);

// The threads of actors that share a process: so many run at once, and one that
// waits for a future lets another run in its place.  Thread-safe.
//
// As WaitObserver of its own tasks: at most kGivenWayMax wait, and it must be
// the thread's for as long as one wants that.
class SharedThreads final : public Executor, public WaitObserver {
 public:
  explicit SharedThreads(int at_once)
      : at_once_(at_once), threads_(at_once + kGivenWayMax) {}

  void Post(Task task) override;
  void PostAfter(absl::Duration delay, Task task) override;

  absl::Status OnWait() override;
  void OnWaited() override;

 private:
  // Whether one more thread is to run; it counts then.
  bool ClaimThread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartThread();
  void Run();

  const int at_once_;

  Mutex mutex_;
  std::deque<Task> ready_ ABSL_GUARDED_BY(mutex_);
  int running_ ABSL_GUARDED_BY(mutex_) = 0;  // with those that wait
  int waiting_ ABSL_GUARDED_BY(mutex_) = 0;

  // The last: its threads use the others.
  ThreadPool threads_;
};

}  // namespace cohort::actor
