#pragma once

#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "bench/report.h"
#include "bench/target.h"
#include "common/mutex.h"

namespace cohort::bench {

// Keeps a number of calls in flight until all are answered.  Thread-safe; one
// Run each.
class ClosedLoop {
 public:
  // `target` outlives it.
  ClosedLoop(Target& target, int total) : target_(target), total_(total) {}

  // Calls a second.  The first error of a call.
  absl::StatusOr<double> Run(int in_flight);

  // Of the calls of Run, in us.
  Samples latencies() const;

 private:
  void Next();

  Target& target_;
  const int total_;
  mutable Mutex mutex_;
  CondVar changed_;
  int begun_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<double> micros_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::bench
