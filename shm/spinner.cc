#include "shm/spinner.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

namespace cohort::shm {
namespace {

// A wake-up through a socket costs as much.
constexpr std::chrono::microseconds kSpinMax(50);
// Asking costs some microseconds.
constexpr int64_t kAskEveryNs = 1'000'000;

int Cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return 1;
  return CPU_COUNT(&cores);
}

}  // namespace

MachineSpinner::MachineSpinner()
    : cores_(Cores()), load_(open("/proc/loadavg", O_RDONLY | O_CLOEXEC)) {}

std::optional<Instant> MachineSpinner::Begin() {
  // With one core the other process cannot run meanwhile.
  if (cores_ < 2) return std::nullopt;
  const Instant now = std::chrono::steady_clock::now();
  const int64_t now_ns = now.time_since_epoch().count();
  if (now_ns - asked_ns_.load(std::memory_order_relaxed) > kAskEveryNs) {
    asked_ns_.store(now_ns, std::memory_order_relaxed);
    may_.store(HasIdleCores(), std::memory_order_relaxed);
  }
  if (!may_.load(std::memory_order_relaxed)) return std::nullopt;
  return now + kSpinMax;
}

bool MachineSpinner::Pause(Instant until) {
  SpinPause();
  return std::chrono::steady_clock::now() < until;
}

// "0.20 0.18 0.12 2/80 11206": the fourth tells how many run or want to, this
// thread and who spins at the other end among them.
bool MachineSpinner::HasIdleCores() const {
  char text[128] = {};
  if (pread(load_.get(), text, sizeof(text) - 1, 0) <= 0) return false;
  int running = 0;
  if (std::sscanf(text, "%*f %*f %*f %d/", &running) != 1) return false;
  return running <= cores_;
}

}  // namespace cohort::shm
