#pragma once

#include "absl/time/time.h"

namespace cohort {

// What time it is: the machine's time or a test's.
//
// Injected wherever time matters, so that no domain class reads a clock itself
// and a test can move time by hand.  Implementations say their thread word.
class Clock {
 public:
  virtual ~Clock() = default;

  // Time since an arbitrary origin; never goes back.  For intervals and
  // deadlines.  Means nothing in another process.
  virtual absl::Duration Monotonic() const = 0;

  // The time of day, for people and records.  May jump either way.
  virtual absl::Time Wall() const = 0;
};

}  // namespace cohort
