#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

#include "common/mutex.h"

namespace cohort::trainer::cuda {

// What a test wants of the calls of one rank's fake libraries: to fail, or to
// hang until it says so; and what they were called.  Thread-safe.
class CallFaults {
 public:
  // The call after the next `skip` ones answers `result` and does nothing.
  void Fail(const std::string& call, int result, int skip = 0) {
    MutexLock lock(mutex_);
    plans_[call] = {.skip = skip, .result = result, .hangs = false};
  }
  // All calls from now on.
  void FailAlways(const std::string& call, int result) {
    MutexLock lock(mutex_);
    plans_[call] = {.result = result, .hangs = false, .stays = true};
  }
  // The call after the next `skip` ones returns only after Release().
  void Hang(const std::string& call, int skip = 0) {
    MutexLock lock(mutex_);
    plans_[call] = {.skip = skip, .hangs = true};
  }
  // Whatever hangs goes on, and nothing hangs or fails any more.
  void Release() {
    MutexLock lock(mutex_);
    ++released_;
    plans_.clear();
    changed_.SignalAll();
  }

  // False when nothing came to hang within `timeout`.
  bool AwaitHang(absl::Duration timeout = absl::Seconds(20)) {
    MutexLock lock(mutex_);
    while (hanging_ == 0) {
      if (!changed_.WaitFor(mutex_, timeout)) return hanging_ > 0;
    }
    return true;
  }

  int Count(const std::string& call) const {
    MutexLock lock(mutex_);
    const auto found = counts_.find(call);
    return found == counts_.end() ? 0 : found->second;
  }
  // How many threads made calls, since ForgetThreads.
  size_t threads() const {
    MutexLock lock(mutex_);
    return threads_.size();
  }

  void ForgetThreads() {
    MutexLock lock(mutex_);
    threads_.clear();
  }

  // For the fakes: the start of every call.  The answer, if a test chose one.
  std::optional<int> Enter(const std::string& call) {
    MutexLock lock(mutex_);
    ++counts_[call];
    threads_.insert(std::this_thread::get_id());
    const auto found = plans_.find(call);
    if (found == plans_.end()) return std::nullopt;
    if (found->second.skip-- > 0) return std::nullopt;
    const Plan plan = found->second;
    if (!plan.stays) plans_.erase(found);
    if (!plan.hangs) return plan.result;
    const int before = released_;
    ++hanging_;
    changed_.SignalAll();
    while (released_ == before) changed_.Wait(mutex_);
    --hanging_;
    return std::nullopt;
  }

 private:
  struct Plan {
    int skip = 0;
    int result = 0;
    bool hangs = false;
    bool stays = false;
  };

  mutable Mutex mutex_;
  CondVar changed_;
  std::map<std::string, Plan> plans_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int> counts_ ABSL_GUARDED_BY(mutex_);
  std::set<std::thread::id> threads_ ABSL_GUARDED_BY(mutex_);
  int hanging_ ABSL_GUARDED_BY(mutex_) = 0;
  int released_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cohort::trainer::cuda
