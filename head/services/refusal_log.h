#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/clock.h"
#include "common/mutex.h"
#include "rpc/principal.h"

namespace cohort::head {

// A call that was refused, as the event `call_refused` has it.  A value.
struct RefusedCall {
  std::string principal;  // "nobody": unknown
  std::string text;
};

// Which calls that were refused become events: one a minute of each caller and
// method, 60 a minute in all, however many there are.  Thread-safe.
class RefusalLog {
 public:
  // `clock` outlives it.
  explicit RefusalLog(const Clock& clock) : clock_(clock) {}

  // As rpc::CallObserver::OnRefused; nothing: it is not recorded.
  std::optional<RefusedCall> Note(absl::string_view path,
                                  const std::string& peer,
                                  const rpc::Principal* who,
                                  const absl::Status& why);

 private:
  const Clock& clock_;
  Mutex mutex_;
  // Of the present minute.
  absl::Duration began_ ABSL_GUARDED_BY(mutex_) = -absl::InfiniteDuration();
  std::map<std::string, size_t> seen_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::head
