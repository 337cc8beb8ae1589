#include "common/backoff.h"

#include <algorithm>

#include "common/check.h"

namespace cohort {

Backoff::Backoff(BackoffOptions options, Random& random)
    : options_(options), random_(random), wait_(options.initial) {
  COHORT_CHECK(options.initial > absl::ZeroDuration());
  COHORT_CHECK(options.initial <= options.max);
  COHORT_CHECK(options.multiplier >= 1);
  COHORT_CHECK(options.jitter >= 0 && options.jitter <= 1);
}

absl::Duration Backoff::Next() {
  const absl::Duration whole = wait_;
  wait_ = std::min(wait_ * options_.multiplier, options_.max);
  return whole * (1 - options_.jitter * random_.Double());
}

}  // namespace cohort
