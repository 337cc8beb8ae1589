#include "trainer/cuda/call_watch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/real_clock.h"
#include "common/status_macros.h"

namespace cohort::trainer::cuda {
namespace {}  // namespace

class CallWatch::Scope {
 public:
  Scope(CallWatch& watch, const char* name) : watch_(watch) {
    MutexLock lock(watch_.mutex_);
    call_ = watch_.calls_.insert(watch_.calls_.end(),
                                 {name, MonotonicNow() + watch_.timeout_});
    // Once a timeout at most: the watch sleeps on until the call before it
    // would have been late.
    if (watch_.is_idle_) watch_.changed_.Signal();
    watch_.is_idle_ = false;
  }
  ~Scope() {
    MutexLock lock(watch_.mutex_);
    watch_.calls_.erase(call_);
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  CallWatch& watch_;
  std::list<Call>::iterator call_;
};

CallWatch::CallWatch(std::string place, absl::Duration timeout, Hung hung)
    : timeout_(timeout),
      hung_(std::move(hung)),
      place_(std::move(place)),
      thread_([this] { Watch(); }) {}

CallWatch::~CallWatch() {
  {
    MutexLock lock(mutex_);
    is_over_ = true;
    changed_.Signal();
  }
  thread_.join();
}

void CallWatch::SetPlace(std::string place) {
  MutexLock lock(mutex_);
  place_ = std::move(place);
}

absl::StatusOr<std::shared_ptr<const DriverTable>> CallWatch::Load(
    const Loader& load) {
  const Scope scope(*this, "loading the driver (dlopen, cuInit)");
  COHORT_ASSIGN_OR_RETURN(const auto driver, load());
  return Watched(*driver);
}

template <typename... Args>
void CallWatch::Wrap(const char* name, std::function<Result(Args...)>& call) {
  if (!call) return;
  call = [this, name, real = std::move(call)](Args... args) {
    const Scope scope(*this, name);
    return real(args...);
  };
}

std::shared_ptr<const DriverTable> CallWatch::Watched(
    const DriverTable& driver) {
  // The words for errors are the library's own and ask nobody; all else is
  // here.
  static_assert(sizeof(DriverTable) == 33 * sizeof(driver.cuInit));
  auto watched = std::make_shared<DriverTable>(driver);
#define COHORT_WATCH(call) Wrap(#call, watched->call)
  COHORT_WATCH(cuInit);
  COHORT_WATCH(cuDriverGetVersion);
  COHORT_WATCH(cuDeviceGetCount);
  COHORT_WATCH(cuDeviceGet);
  COHORT_WATCH(cuDeviceGetName);
  COHORT_WATCH(cuDeviceGetUuid);
  COHORT_WATCH(cuDevicePrimaryCtxRetain);
  COHORT_WATCH(cuDevicePrimaryCtxRelease);
  COHORT_WATCH(cuCtxSetCurrent);
  COHORT_WATCH(cuMemGetInfo);
  COHORT_WATCH(cuMemAlloc);
  COHORT_WATCH(cuMemFree);
  COHORT_WATCH(cuMemHostAlloc);
  COHORT_WATCH(cuMemFreeHost);
  COHORT_WATCH(cuMemcpyAsync);
  COHORT_WATCH(cuMemsetD8Async);
  COHORT_WATCH(cuPointerGetAttribute);
  COHORT_WATCH(cuStreamCreate);
  COHORT_WATCH(cuStreamDestroy);
  COHORT_WATCH(cuStreamWaitEvent);
  COHORT_WATCH(cuEventCreate);
  COHORT_WATCH(cuEventRecord);
  COHORT_WATCH(cuEventQuery);
  COHORT_WATCH(cuEventDestroy);
  COHORT_WATCH(cuIpcGetMemHandle);
  COHORT_WATCH(cuIpcOpenMemHandle);
  COHORT_WATCH(cuIpcCloseMemHandle);
  COHORT_WATCH(cuModuleLoadData);
  COHORT_WATCH(cuModuleUnload);
  COHORT_WATCH(cuModuleGetFunction);
  COHORT_WATCH(cuLaunchKernel);
#undef COHORT_WATCH
  return watched;
}

void CallWatch::Watch() {
  MutexLock lock(mutex_);
  while (!is_over_) {
    const absl::Duration next = TellOfLateCalls();
    is_idle_ = next == absl::InfiniteDuration();
    changed_.WaitUntil(mutex_, next);
  }
}

absl::Duration CallWatch::TellOfLateCalls() {
  absl::Duration next = absl::InfiniteDuration();
  for (Call& call : calls_) {
    if (MonotonicNow() >= call.until) {
      call.until = absl::InfiniteDuration();
      hung_(absl::StrCat(place_, ": ", call.name, " has not come back for ",
                         absl::FormatDuration(timeout_)));
    }
    next = std::min(next, call.until);
  }
  return next;
}

}  // namespace cohort::trainer::cuda
