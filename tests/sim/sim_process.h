#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "common/executor.h"

namespace cohort::sim {

// The executor of one simulated process: runs on the world's, stands still
// while the process is stopped (SIGSTOP), and forgets everything when it dies.
//
// Thread-compatible; outlived by the world.
class ProcessExecutor final : public Executor {
 public:
  explicit ProcessExecutor(Executor& world)
      : world_(world), state_(std::make_shared<State>()) {}
  ~ProcessExecutor() override { Kill(); }

  void Post(Task task) override {
    PostAfter(absl::ZeroDuration(), std::move(task));
  }

  void PostAfter(absl::Duration delay, Task task) override {
    if (state_->dead) return;
    world_.PostAfter(delay, [state = state_, task = std::move(task)]() mutable {
      if (state->dead) return;
      if (state->stopped) {
        state->held.push_back(std::move(task));
        return;
      }
      ++state->runs;
      std::move(task)();
    });
  }

  // SIGSTOP and SIGCONT.
  void Stop() { state_->stopped = true; }
  void Continue() {
    state_->stopped = false;
    for (Task& task : std::exchange(state_->held, {})) Post(std::move(task));
  }
  bool stopped() const { return state_->stopped; }
  // Tasks that ran.
  uint64_t runs() const { return state_->runs; }

  // SIGKILL: nothing of it runs any more.
  void Kill() {
    state_->dead = true;
    state_->held.clear();
  }

 private:
  struct State {
    bool stopped = false;
    bool dead = false;
    uint64_t runs = 0;
    std::deque<Task> held;
  };

  Executor& world_;
  // Shared: this and the tasks that the world still has.
  const std::shared_ptr<State> state_;
};

}  // namespace cohort::sim
