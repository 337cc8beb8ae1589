#include "shm/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace cohort::shm {
namespace {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
static_assert(std::atomic<uint32_t>::is_always_lock_free);

long Futex(std::atomic<uint32_t>& word, int operation, uint32_t value,
           const timespec* timeout) {
  // Not FUTEX_PRIVATE: the word is shared between processes.
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation,
                 value, timeout, nullptr, 0);
}

}  // namespace

Instant After(absl::Duration duration) {
  const Instant now = std::chrono::steady_clock::now();
  const absl::Duration limit =
      absl::FromChrono(Instant::max() - now) - absl::Seconds(1);
  if (duration >= limit) return Instant::max();
  return now + absl::ToChronoNanoseconds(duration);
}

void FutexWait(std::atomic<uint32_t>& word, uint32_t expected, Instant until) {
  const auto left = until - std::chrono::steady_clock::now();
  if (left <= left.zero()) return;
  const int64_t ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
  const timespec timeout = {.tv_sec = static_cast<time_t>(ns / 1'000'000'000),
                            .tv_nsec = static_cast<long>(ns % 1'000'000'000)};
  Futex(word, FUTEX_WAIT, expected, &timeout);
}

void FutexWakeAll(std::atomic<uint32_t>& word) {
  Futex(word, FUTEX_WAKE, INT_MAX, nullptr);
}

}  // namespace cohort::shm
