#pragma once

#include <optional>
#include <thread>

#include "absl/time/time.h"

#include "shm/futex.h"
#include "shm/spinner.h"

namespace cohort::actor {

// Looks for 50 us whatever else runs, and lets it run.
class PatientSpinner final : public shm::Spinner {
 public:
  std::optional<shm::Instant> Begin(bool /*other_looks*/) override {
    return shm::After(absl::Microseconds(50));
  }
  bool Pause(shm::Instant until) override {
    std::this_thread::yield();
    return shm::Instant::clock::now() < until;
  }
};

}  // namespace cohort::actor
