#pragma once

#include "absl/time/time.h"

#include "common/clock.h"

namespace cohort {

// The machine's clocks: CLOCK_MONOTONIC and the time of day.  Immutable.
class MachineClock final : public Clock {
 public:
  // Shares its origin with CondVar::WaitUntil and ThreadPool's timers.
  absl::Duration Monotonic() const override;
  absl::Time Wall() const override;
};

// MachineClock's, for what is at the edge and takes no Clock.
inline absl::Duration MonotonicNow() { return MachineClock().Monotonic(); }

}  // namespace cohort
