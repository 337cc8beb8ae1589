#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "common/unique_fd.h"
#include "shm/futex.h"

namespace cohort::shm {

// For how long who waits for another process looks at memory before it sleeps.
// Thread-safe.
class Spinner {
 public:
  virtual ~Spinner() = default;

  // Until when the thread may look; nullopt: it is to sleep at once.
  virtual std::optional<Instant> Begin() = 0;
  // Between two looks.  False: it is time to sleep.
  virtual bool Pause(Instant until) = 0;
};

// Looks for 50 us, and not at all while more threads of the machine want to run
// than it has cores: one that spins would keep another off.
class MachineSpinner final : public Spinner {
 public:
  MachineSpinner();

  std::optional<Instant> Begin() override;
  bool Pause(Instant until) override;

 private:
  bool HasIdleCores() const;

  const int cores_;
  const UniqueFd load_;
  std::atomic<int64_t> asked_ns_{0};
  std::atomic<bool> may_{false};
};

}  // namespace cohort::shm
