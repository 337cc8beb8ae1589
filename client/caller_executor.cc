#include "client/caller_executor.h"

#include <utility>

#include "common/real_clock.h"

namespace cohort::client {

void CallerExecutor::Post(Task task) {
  const std::shared_ptr<State> state = state_;
  MutexLock lock(state->mutex);
  state->ready.push_back(std::move(task));
  state->posted.Signal();
}

void CallerExecutor::PostAfter(absl::Duration delay, Task task) {
  const std::shared_ptr<State> state = state_;
  MutexLock lock(state->mutex);
  state->timers.emplace(MonotonicNow() + delay, std::move(task));
  state->posted.Signal();
}

Task CallerExecutor::Next(State& state) {
  MutexLock lock(state.mutex);
  for (;;) {
    if (!state.timers.empty() &&
        state.timers.begin()->first <= MonotonicNow()) {
      Task task = std::move(state.timers.begin()->second);
      state.timers.erase(state.timers.begin());
      return task;
    }
    if (!state.ready.empty()) {
      Task task = std::move(state.ready.front());
      state.ready.pop_front();
      return task;
    }
    if (state.timers.empty()) {
      state.posted.Wait(state.mutex);
    } else {
      state.posted.WaitUntil(state.mutex, state.timers.begin()->first);
    }
  }
}

void CallerExecutor::RunUntil(absl::FunctionRef<bool()> finished) {
  while (!finished()) Next (*state_)();
}

}  // namespace cohort::client
