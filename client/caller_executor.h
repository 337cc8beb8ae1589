#pragma once

#include <deque>
#include <map>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

#include "common/executor.h"
#include "common/mutex.h"

namespace cohort::client {

// Runs its tasks and timers on the one thread that waits in RunUntil: a
// blocking call costs no other thread and no hop.
//
// Posting is thread-safe; RunUntil is for the thread that made it.
class CallerExecutor final : public Executor {
 public:
  CallerExecutor() : state_(std::make_shared<State>()) {}

  CallerExecutor(const CallerExecutor&) = delete;
  CallerExecutor& operator=(const CallerExecutor&) = delete;

  void Post(Task task) override;
  void PostAfter(absl::Duration delay, Task task) override;

  // Runs tasks, as they come, until `finished`, which is asked after each.
  void RunUntil(absl::FunctionRef<bool()> finished);

 private:
  struct State {
    Mutex mutex;
    CondVar posted;
    std::deque<Task> ready ABSL_GUARDED_BY(mutex);
    std::multimap<absl::Duration, Task> timers ABSL_GUARDED_BY(mutex);
  };

  static Task Next(State& state);

  // Shared: this and the Post that wakes the waiting thread, which may destroy
  // this before that Post has returned.
  const std::shared_ptr<State> state_;
};

}  // namespace cohort::client
