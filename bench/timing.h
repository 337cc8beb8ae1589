#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "common/check.h"

// What benches of calls measure with.
namespace cohort::bench {

// A bench ends at the first error.
template <typename T>
T Ok(const absl::StatusOr<T>& result) {
  COHORT_CHECK(result.ok()) << result.status().ToString();
  return *result;
}

inline double SecondsFor(const std::function<void()>& what) {
  const absl::Time start = absl::Now();
  what();
  return absl::ToDoubleSeconds(absl::Now() - start);
}

}  // namespace cohort::bench
