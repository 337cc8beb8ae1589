#pragma once

#include <cstddef>
#include <utility>

#include "absl/time/time.h"

#include "common/mutex.h"

namespace cohort {

// Counts work in flight, so that a component can refuse new work and wait for
// the old before it is destroyed.
//
//   Gate::Pass pass = gate_.TryEnter();
//   if (!pass) return absl::UnavailableError("shutting down");
//   strand_.Post([this, pass = std::move(pass)] { ... });
//
// Thread-safe.  Outlives its passes: WaitUntilIdle before destroying it.
class Gate {
 public:
  // Leaves the gate when destroyed.  Empty when the gate was closed, after a
  // move, and by default.  Thread-compatible.
  class [[nodiscard]] Pass {
   public:
    Pass() = default;
    Pass(Pass&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)) {}
    Pass& operator=(Pass&& other) noexcept {
      std::swap(gate_, other.gate_);
      return *this;
    }
    ~Pass() {
      if (gate_ != nullptr) gate_->Leave();
    }

    explicit operator bool() const { return gate_ != nullptr; }

   private:
    friend class Gate;
    explicit Pass(Gate* gate) : gate_(gate) {}

    Gate* gate_ = nullptr;
  };

  Gate() = default;
  // Crashes when a pass is still out.
  ~Gate();

  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // An empty pass once the gate is closed.
  Pass TryEnter();

  // No more passes; those out stay valid.
  void Close();

  // Blocks until no pass is out; false when `timeout` passed before.  Without
  // Close, new work may enter right after.
  bool WaitUntilIdle(absl::Duration timeout = absl::InfiniteDuration());

  bool closed() const;
  // Passes out now.
  size_t in_flight() const;

 private:
  void Leave();

  mutable Mutex mutex_;
  CondVar idle_;
  size_t in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cohort
