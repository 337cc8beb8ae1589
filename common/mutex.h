#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

// std::mutex and friends with clang's thread annotations.
//
// Not absl::Mutex: Debian's Abseil is built without ThreadSanitizer's
// instrumentation, so correct code that uses it is reported as racy.
namespace cohort {

// Thread-safe.
class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) {
    return mutex_.try_lock();
  }

 private:
  friend class CondVar;

  std::mutex mutex_;
};

// Holds a Mutex from construction to destruction.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex)
      : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }

  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Waits for a change that another thread makes under the same Mutex.
// Thread-safe.  Waits may end early without a reason: loop on the condition.
//
//   MutexLock lock(mutex_);
//   while (!ready_) changed_.Wait(mutex_);
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  void Wait(Mutex& mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }

  // False when `timeout` passed without a signal.
  bool WaitFor(Mutex& mutex, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const absl::Duration now =
        absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
    return WaitUntil(mutex, now + timeout);
  }

  // False when MachineClock::Monotonic() reached `deadline` without a signal.
  bool WaitUntil(Mutex& mutex, absl::Duration deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    // Beyond int64 nanoseconds (292 years) there is no deadline.
    if (deadline >= absl::Hours(24 * 365 * 290)) {
      Wait(mutex);
      return true;
    }
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const std::chrono::steady_clock::time_point until(
        absl::ToChronoNanoseconds(deadline));
    const bool signalled =
        condition_.wait_until(lock, until) == std::cv_status::no_timeout;
    lock.release();
    return signalled;
  }

  void Signal() { condition_.notify_one(); }
  void SignalAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace cohort
