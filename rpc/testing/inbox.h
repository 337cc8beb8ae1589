#pragma once

#include <deque>
#include <utility>

#include "absl/time/time.h"

#include "common/check.h"
#include "common/mutex.h"

namespace cohort::rpc {

// Hands values from callbacks to a test's own thread.  Thread-safe.
template <typename T>
class Inbox {
 public:
  void Put(T value) {
    MutexLock lock(mutex_);
    values_.push_back(std::move(value));
    changed_.SignalAll();
  }

  // Waits for a value; crashes after a minute: it never came.
  T Take() {
    MutexLock lock(mutex_);
    while (values_.empty()) {
      COHORT_CHECK(changed_.WaitFor(mutex_, absl::Minutes(1)));
    }
    T value = std::move(values_.front());
    values_.pop_front();
    return value;
  }

  bool empty() const {
    MutexLock lock(mutex_);
    return values_.empty();
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<T> values_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::rpc
