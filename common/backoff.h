#pragma once

#include "absl/time/time.h"

#include "common/random.h"

namespace cohort {

struct BackoffOptions {
  // The first wait: long enough for a process that restarts to be back.
  absl::Duration initial = absl::Milliseconds(100);
  // No wait is longer.
  absl::Duration max = absl::Seconds(10);
  // How much longer than the one before each wait is.
  double multiplier = 2;
  // A wait is shortened by up to this part of it, at random, so that those who
  // failed together do not return together.
  double jitter = 0.5;
};

// How long to wait before each attempt after a failure.
//
// Thread-compatible.  `random` must outlive it.
class Backoff {
 public:
  // REQUIRES: 0 < initial <= max, multiplier >= 1, 0 <= jitter <= 1.
  Backoff(BackoffOptions options, Random& random);

  // The wait before the next attempt.
  absl::Duration Next();

  // After a success: the next wait is the first again.
  void Reset() { wait_ = options_.initial; }

 private:
  const BackoffOptions options_;
  Random& random_;
  absl::Duration wait_;
};

}  // namespace cohort
