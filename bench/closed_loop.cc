#include "bench/closed_loop.h"

#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "common/status_macros.h"

namespace cohort::bench {

absl::StatusOr<double> ClosedLoop::Run(int in_flight) {
  const absl::Time start = absl::Now();
  for (int i = 0; i < in_flight; ++i) Next();
  MutexLock lock(mutex_);
  while (static_cast<int>(micros_.size()) < total_) changed_.Wait(mutex_);
  COHORT_RETURN_IF_ERROR(failure_);
  return total_ / absl::ToDoubleSeconds(absl::Now() - start);
}

Samples ClosedLoop::latencies() const {
  MutexLock lock(mutex_);
  return {.values = micros_};
}

void ClosedLoop::Next() {
  int number = 0;
  {
    MutexLock lock(mutex_);
    if (begun_ == total_) return;
    number = begun_++;
  }
  const absl::Time start = absl::Now();
  target_.Call(number, [this, start](const absl::Status& status) {
    const double micros = absl::ToDoubleMicroseconds(absl::Now() - start);
    Next();
    MutexLock lock(mutex_);
    failure_.Update(status);
    micros_.push_back(micros);
    if (static_cast<int>(micros_.size()) == total_) changed_.Signal();
  });
}

}  // namespace cohort::bench
