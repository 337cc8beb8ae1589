#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "absl/time/time.h"

namespace cohort::shm {

// A point of the monotonic clock.  Sleeping on a futex is an effect of the
// kernel's clock, which is why this one is not injected.
using Instant = std::chrono::steady_clock::time_point;

// Now plus `duration`; Instant::max() when that is further than the clock goes.
Instant After(absl::Duration duration);

// Sleeps while `word`, which may be shared between processes, is `expected`,
// until somebody wakes it or `until` comes.  May wake for no reason.
void FutexWait(std::atomic<uint32_t>& word, uint32_t expected, Instant until);

// Wakes all who sleep on `word`.
void FutexWakeAll(std::atomic<uint32_t>& word);

// Tells the core that this is a spin loop.
inline void SpinPause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace cohort::shm
