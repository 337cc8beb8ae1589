#pragma once

#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"

#include "common/executor.h"

namespace cohort::worker {

// A thread that asks one question after the other of a driver that may hang:
// one that does is left behind, and ends with the process.  It runs while there
// are questions.
//
// Thread-safe.
class DeviceThread {
 public:
  // Runs on the thread; what it gives is posted to `answers`.  What it uses
  // must be its own: it may outlive everything.
  using Question = absl::AnyInvocable<Task() &&>;

  // `answers` outlives Stop.
  explicit DeviceThread(Executor& answers);
  // As Stop.
  ~DeviceThread();

  DeviceThread(const DeviceThread&) = delete;
  DeviceThread& operator=(const DeviceThread&) = delete;

  // Dropped once it is stopped, as is the answer.
  void Ask(Question question);

  // Drops what has not begun and waits at most so long for what has.  False
  // when that was left behind.
  bool Stop(absl::Duration timeout = absl::Seconds(2));

 private:
  struct State;

  static void Run(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;
};

}  // namespace cohort::worker
