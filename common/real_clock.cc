#include "common/real_clock.h"

#include <chrono>

#include "absl/time/clock.h"

namespace cohort {

absl::Duration MachineClock::Monotonic() const {
  return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

absl::Time MachineClock::Wall() const { return absl::Now(); }

}  // namespace cohort
