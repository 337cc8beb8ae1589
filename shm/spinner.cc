#include "shm/spinner.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace cohort::shm {
namespace {

// A wake-up through a socket costs as much.
constexpr std::chrono::microseconds kSpinMax(50);
// Asking costs some microseconds.
constexpr int64_t kAskEveryNs = 1'000'000;
constexpr int kUnknown = 1'000'000;

int Cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return 1;
  return CPU_COUNT(&cores);
}

}  // namespace

MachineSpinner::MachineSpinner()
    : cores_(Cores()),
      load_(open("/proc/loadavg", O_RDONLY | O_CLOEXEC)),
      least_(kUnknown) {
  for (auto& each : running_) each = kUnknown;
}

std::optional<Instant> MachineSpinner::Begin(bool other_looks) {
  const Instant now = std::chrono::steady_clock::now();
  const int64_t now_ns = now.time_since_epoch().count();
  if (now_ns - asked_ns_.load(std::memory_order_relaxed) > kAskEveryNs) {
    asked_ns_.store(now_ns, std::memory_order_relaxed);
    Ask();
  }
  // This thread runs, and the other process needs a core.
  const int room = cores_ - (other_looks ? 0 : 1);
  if (cores_ < 2 || least_.load(std::memory_order_relaxed) > room) {
    return std::nullopt;
  }
  return now + kSpinMax;
}

bool MachineSpinner::Pause(Instant until) {
  SpinPause();
  return std::chrono::steady_clock::now() < until;
}

void MachineSpinner::Ask() {
  running_[asked_.fetch_add(1) % kTimes] = Running();
  int least = kUnknown;
  for (const auto& each : running_) least = std::min(least, each.load());
  least_ = least;
}

// "0.20 0.18 0.12 2/80 11206": the fourth.
int MachineSpinner::Running() const {
  char text[128] = {};
  if (pread(load_.get(), text, sizeof(text) - 1, 0) <= 0) return kUnknown;
  int running = 0;
  if (std::sscanf(text, "%*f %*f %*f %d/", &running) != 1) return kUnknown;
  return running;
}

}  // namespace cohort::shm
