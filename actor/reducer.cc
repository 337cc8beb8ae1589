#include "actor/reducer.h"

#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "actor/call_error.h"
#include "actor/demangle.h"
#include "common/mutex.h"
#include "common/status_util.h"

namespace cohort::actor {
namespace {

// Thread-safe: a shared object that is opened later registers, too.
class Reducers {
 public:
  void Add(const char* name, Combine combine) {
    MutexLock lock(mutex_);
    by_name_.emplace(name, combine);
  }
  Combine Find(const std::string& name) const {
    MutexLock lock(mutex_);
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : found->second;
  }

 private:
  mutable Mutex mutex_;
  std::map<std::string, Combine> by_name_ ABSL_GUARDED_BY(mutex_);
};

// Made when the first file of the program registers one, never ended.
Reducers& All() {
  static auto* const all = new Reducers;
  return *all;
}

}  // namespace

bool RegisterReducer(const char* name, Combine combine) {
  All().Add(name, combine);
  return true;
}

absl::StatusOr<std::string> Reduced(const std::string& reducer,
                                    absl::string_view a, absl::string_view b) {
  const Combine combine = All().Find(reducer);
  if (combine == nullptr) {
    return SetReason(absl::UnimplementedError(absl::StrCat(
                         "this program has no reducer ", Demangle(reducer))),
                     kReasonNoMethod);
  }
  try {
    return combine(a, b);
  } catch (...) {
    return ExceptionStatus();
  }
}

}  // namespace cohort::actor
