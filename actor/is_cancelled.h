#pragma once

#include <atomic>

namespace cohort {

// Whether nobody waits any more for the task or call that runs on this thread:
// its caller has cancelled it (Future::Cancel).  It may then return whatever it
// likes.  False on threads that run none.
bool IsCancelled();

namespace actor {

// While a call runs, on its thread.
class CancelFlag {
 public:
  CancelFlag();
  ~CancelFlag();
  CancelFlag(const CancelFlag&) = delete;
  CancelFlag& operator=(const CancelFlag&) = delete;

  // From any thread, while it lives.
  void Set() { is_set_.store(true, std::memory_order_relaxed); }
  bool is_set() const { return is_set_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> is_set_ = false;
  CancelFlag* const outer_;
};

}  // namespace actor
}  // namespace cohort
