#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/mutex.h"
#include "trainer/cuda/driver.h"

namespace cohort::trainer::cuda {

// A watch over calls of the driver, for threads that make them themselves: a
// driver that is sick answers some calls never, and nobody can take a thread
// back from one.  What can be done is to say which call it is, and to end.
//
// Thread-safe.
class CallWatch {
 public:
  // "GPU-...: cuInit has not come back for 30s".  On the watch's thread, once a
  // call; that call does not return to who made it before this does, which must
  // not use the watch.
  using Hung = std::function<void(absl::string_view why)>;
  using Loader =
      std::function<absl::StatusOr<std::shared_ptr<const DriverTable>>()>;

  // `place` names the device in `why`; each call may take `timeout`.
  CallWatch(std::string place, absl::Duration timeout, Hung hung);
  // No call may be under way.
  ~CallWatch();
  CallWatch(const CallWatch&) = delete;
  CallWatch& operator=(const CallWatch&) = delete;

  // A better name for the device, as soon as there is one.
  void SetPlace(std::string place);

  // What `load` gives, with every call watched, the load itself too.  *this
  // must outlive the table.
  absl::StatusOr<std::shared_ptr<const DriverTable>> Load(const Loader& load);

 private:
  struct Call {
    const char* name;
    absl::Duration until;
  };
  // Watches a call as long as it lives.
  class Scope;

  std::shared_ptr<const DriverTable> Watched(const DriverTable& driver);
  template <typename... Args>
  void Wrap(const char* name, std::function<Result(Args...)>& call);
  void Watch();
  // Tells of what is late; when the next one will be.
  absl::Duration TellOfLateCalls() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const absl::Duration timeout_;
  const Hung hung_;
  Mutex mutex_;
  CondVar changed_;
  std::string place_ ABSL_GUARDED_BY(mutex_);
  std::list<Call> calls_ ABSL_GUARDED_BY(mutex_);  // under way
  bool is_idle_ ABSL_GUARDED_BY(mutex_) = false;   // until a call begins
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  // Last: it uses the others.
  std::thread thread_;
};

}  // namespace cohort::trainer::cuda
