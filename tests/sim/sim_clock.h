#pragma once

#include "absl/time/time.h"

#include "common/clock.h"

namespace cohort::sim {

// The clock of the simulated machines: monotonic time is the world's, the time
// of day jumps when a fault says so.  Thread-compatible.
class SteppingClock final : public Clock {
 public:
  // `world` outlives it.
  explicit SteppingClock(const Clock& world) : world_(world) {}

  absl::Duration Monotonic() const override { return world_.Monotonic(); }
  // In whole microseconds, which is what rows keep.
  absl::Time Wall() const override {
    return absl::FromUnixMicros(absl::ToUnixMicros(world_.Wall() + offset_));
  }

  void Step(absl::Duration by) { offset_ += by; }

 private:
  const Clock& world_;
  absl::Duration offset_;
};

}  // namespace cohort::sim
