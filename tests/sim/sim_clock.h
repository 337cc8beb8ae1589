#pragma once

#include <algorithm>

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

  void Step(absl::Duration by) {
    offset_ += by;
    furthest_ = std::max(furthest_, offset_);
  }
  // As somebody who finds it behind puts it right: what it was to show soon it
  // shows.
  void CatchUp() { offset_ = furthest_; }

 private:
  const Clock& world_;
  absl::Duration offset_;
  absl::Duration furthest_;
};

// A clock whose monotonic time crawls, for tests of who relies on it.
class CrawlingClock final : public Clock {
 public:
  // `clock` outlives it.
  explicit CrawlingClock(const Clock& clock)
      : clock_(clock), start_(clock.Monotonic()) {}

  absl::Duration Monotonic() const override {
    return start_ + (clock_.Monotonic() - start_) / 8;
  }
  absl::Time Wall() const override { return clock_.Wall(); }

 private:
  const Clock& clock_;
  const absl::Duration start_;
};

}  // namespace cohort::sim
