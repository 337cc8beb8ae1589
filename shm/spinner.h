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
  // `other_looks`: so does the other process just now.
  virtual std::optional<Instant> Begin(bool other_looks) = 0;
  // Between two looks.  False: it is time to sleep.
  virtual bool Pause(Instant until) = 0;
};

// Looks for 50 us, and only where a core is left for the other process, however
// many threads of the machine want to run: one that spins would keep it off.
class MachineSpinner final : public Spinner {
 public:
  MachineSpinner();

  std::optional<Instant> Begin(bool other_looks) override;
  bool Pause(Instant until) override;

 private:
  // That run or want to, on this machine; many when nobody knows.
  int Running() const;
  void Ask();

  const int cores_;
  const UniqueFd load_;
  std::atomic<int64_t> asked_ns_{0};
  // The least of several times: a call itself has threads run for a moment.
  static constexpr int kTimes = 8;
  std::atomic<int> running_[kTimes];
  std::atomic<int> least_;
  std::atomic<unsigned> asked_{0};
};

}  // namespace cohort::shm
