#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

#include "common/mutex.h"
#include "common/real_clock.h"

namespace cohort {

// Something that happens once, and that another thread waits for.  Thread-safe.
// The thread that opens it must keep it alive until Open has returned: share
// it.
class Latch {
 public:
  void Open() {
    MutexLock lock(mutex_);
    open_ = true;
    changed_.SignalAll();
  }

  // Blocks until it is open.
  void Wait() { WaitFor(absl::InfiniteDuration()); }

  // False when `timeout` passed first.
  bool WaitFor(absl::Duration timeout) {
    MutexLock lock(mutex_);
    const absl::Duration deadline = MonotonicNow() + timeout;
    while (!open_) {
      if (!changed_.WaitUntil(mutex_, deadline) && !open_) return false;
    }
    return true;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cohort
