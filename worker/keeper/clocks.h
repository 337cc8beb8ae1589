#pragma once

#include <time.h>

#include <cstdint>

namespace cohort::keeper {

// For intervals and deadlines; the same in every process until the machine
// starts again.
inline int64_t MonotonicNow_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

// For people and records; may jump either way.
inline int64_t WallNow_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace cohort::keeper
