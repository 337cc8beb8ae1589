#include "examples/hang_guard.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "common/real_clock.h"
#include "examples/program.h"

namespace cohort::examples {

HangGuard::HangGuard(std::string what, absl::Duration patience)
    : what_(std::move(what)),
      patience_(patience),
      thread_([this] { Watch(); }) {}

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
  const absl::Duration until = clock.Monotonic() + patience_;
  MutexLock lock(mutex_);
  while (!is_over_) {
    if (clock.Monotonic() >= until) {
      EndNow(absl::DeadlineExceededError(absl::StrCat(
          what_, ": not over after ", absl::FormatDuration(patience_))));
    }
    changed_.WaitUntil(mutex_, until);
  }
}

}  // namespace cohort::examples
