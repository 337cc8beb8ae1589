#include "actor/shared_threads.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "actor/call_error.h"
#include "common/status_util.h"

namespace cohort::actor {

absl::Status TooManyWait(int waiting) {
  return SetReason(
      absl::ResourceExhaustedError(absl::StrCat(
          waiting,
          " calls of this process wait for others already, which is all that "
          "it can hold (let fewer of them wait for each other)")),
      kReasonQueueFull);
}

void SharedThreads::Post(Task task) {
  {
    MutexLock lock(mutex_);
    ready_.push_back(std::move(task));
    if (!ClaimThread()) return;
  }
  StartThread();
}

void SharedThreads::PostAfter(absl::Duration delay, Task task) {
  threads_.PostAfter(delay, [this, task = std::move(task)]() mutable {
    Post(std::move(task));
  });
}

absl::Status SharedThreads::OnWait() {
  {
    MutexLock lock(mutex_);
    if (waiting_ >= kGivenWayMax) return TooManyWait(waiting_);
    ++waiting_;
    if (!ClaimThread()) return absl::OkStatus();
  }
  StartThread();
  return absl::OkStatus();
}

void SharedThreads::OnWaited() {
  MutexLock lock(mutex_);
  --waiting_;
}

bool SharedThreads::ClaimThread() {
  if (ready_.empty() || running_ - waiting_ >= at_once_) return false;
  ++running_;
  return true;
}

void SharedThreads::StartThread() {
  threads_.Post([this] { Run(); });
}

void SharedThreads::Run() {
  for (;;) {
    Task task;
    {
      MutexLock lock(mutex_);
      if (ready_.empty() || running_ - waiting_ > at_once_) {
        --running_;
        return;
      }
      task = std::move(ready_.front());
      ready_.pop_front();
    }
    std::move(task)();
  }
}

}  // namespace cohort::actor
