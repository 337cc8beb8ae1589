#include "trainer/hang_guard.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "common/real_clock.h"

namespace cohort::trainer {

void EndNow(const absl::Status& why) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name,
               std::string(why.message()).c_str());
  std::fflush(stderr);
  _exit(EXIT_FAILURE);
}

HangGuard::HangGuard(std::string what, absl::Duration timeout)
    : what_(std::move(what)), timeout_(timeout), thread_([this] { Watch(); }) {}

HangGuard::~HangGuard() {
  {
    MutexLock lock(mutex_);
    is_over_ = true;
    changed_.Signal();
  }
  thread_.join();
}

void HangGuard::Watch() {
  const MachineClock clock;
  const absl::Duration until = clock.Monotonic() + timeout_;
  MutexLock lock(mutex_);
  while (!is_over_) {
    if (clock.Monotonic() >= until) {
      EndNow(absl::DeadlineExceededError(absl::StrCat(
          what_, ": not over after ", absl::FormatDuration(timeout_))));
    }
    changed_.WaitUntil(mutex_, until);
  }
}

}  // namespace cohort::trainer
