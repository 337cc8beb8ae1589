#pragma once

#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"

#include "common/mutex.h"

namespace cohort::trainer {

// Tells `why` on stderr, behind the program's name, and ends the process with 1
// there and then: no destructor runs, nor what was left for the exit.  For a
// device that does not answer, which would hold these, too.  Thread-safe.
[[noreturn]] void EndNow(const absl::Status& why);

// Ends the process (EndNow) when it is still there after `timeout`: around
// calls that reach a device's driver, which take no deadline and of a sick
// device come back never.
//
//   const HangGuard guard("opening the GPU", absl::Minutes(5));
//
// A thread of its own, so not for every step of a training.  Thread-compatible.
class HangGuard {
 public:
  // `what`, as "cuda:0: opening the GPU", is what the process ends by.
  HangGuard(std::string what, absl::Duration timeout);
  ~HangGuard();

  HangGuard(const HangGuard&) = delete;
  HangGuard& operator=(const HangGuard&) = delete;

 private:
  void Watch();

  const std::string what_;
  const absl::Duration timeout_;
  Mutex mutex_;
  CondVar changed_;
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace cohort::trainer
