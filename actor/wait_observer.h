#pragma once

#include "absl/status/status.h"

namespace cohort::actor {

// Told when a thread waits for a future (Future::Get, WaitAll, WaitAny), so
// that others may run meanwhile.  Called on that thread.
class WaitObserver {
 public:
  virtual ~WaitObserver() = default;

  // Not OK: the thread may not wait, and the wait ends with that.
  virtual absl::Status OnWait() = 0;
  // REQUIRES: OnWait was OK.
  virtual void OnWaited() = 0;

  // Sets the observer of the thread that makes it, as long as it lives.
  class Here {
   public:
    explicit Here(WaitObserver& observer);
    ~Here();
    Here(const Here&) = delete;
    Here& operator=(const Here&) = delete;

   private:
    WaitObserver* const before_;
  };

  // Of this thread; null when it has none.
  static WaitObserver* OfThisThread();
};

}  // namespace cohort::actor
