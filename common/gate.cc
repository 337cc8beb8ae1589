#include "common/gate.h"

#include "common/check.h"
#include "common/real_clock.h"

namespace cohort {

Gate::~Gate() { COHORT_CHECK(in_flight() == 0) << "work is in flight"; }

Gate::Pass Gate::TryEnter() {
  MutexLock lock(mutex_);
  if (closed_) return Pass();
  ++in_flight_;
  return Pass(this);
}

void Gate::Close() {
  MutexLock lock(mutex_);
  closed_ = true;
}

bool Gate::WaitUntilIdle(absl::Duration timeout) {
  const absl::Duration deadline = MonotonicNow() + timeout;
  MutexLock lock(mutex_);
  while (in_flight_ > 0) {
    if (!idle_.WaitUntil(mutex_, deadline)) return in_flight_ == 0;
  }
  return true;
}

bool Gate::closed() const {
  MutexLock lock(mutex_);
  return closed_;
}

size_t Gate::in_flight() const {
  MutexLock lock(mutex_);
  return in_flight_;
}

void Gate::Leave() {
  MutexLock lock(mutex_);
  --in_flight_;
  // Under the lock: the waiting thread may destroy the gate as soon as it can.
  if (in_flight_ == 0) idle_.SignalAll();
}

}  // namespace cohort
