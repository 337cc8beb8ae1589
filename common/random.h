#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace cohort {

// Where chance comes from: injected, so that a test replays it from a seed.
// Implementations say their thread word.
class Random {
 public:
  virtual ~Random() = default;

  // Uniform over all values.
  virtual uint64_t Uint64() = 0;

  // Overwrites all of `out` with random bytes.
  virtual void Fill(std::span<uint8_t> out);

  // `n` random bytes.
  std::string Bytes(size_t n);

  // Uniform in [0, n).  REQUIRES: n > 0.
  uint64_t Below(uint64_t n);

  // Uniform in [0, 1).
  double Double();
};

// One seed, one sequence, on every machine and release.  Guessable: for tests,
// jitter and sampling, never for credentials.  Thread-compatible.
class SeededRandom final : public Random {
 public:
  explicit SeededRandom(uint64_t seed) : state_(seed) {}

  uint64_t Uint64() override;

 private:
  uint64_t state_;
};

// The kernel's generator (getrandom): ids and credentials.  Thread-safe.
class SystemRandom final : public Random {
 public:
  uint64_t Uint64() override;
  void Fill(std::span<uint8_t> out) override;
};

}  // namespace cohort
