#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "actor/call_target.h"
#include "actor/codec.h"
#include "common/mutex.h"

namespace cohort::actor {

// What became of a call to several ranks.
struct SliceResult {
  // Of the first that failed; -1: of none, or of none in particular.
  int failed_rank = -1;
  absl::Status status;
  // When it is OK: of each rank, or one that was made of all.
  std::vector<std::string> values;
  COHORT_FIELDS(failed_rank, status, values)
};

// One call to several ranks: its parts are under way, and their results become
// one in the order of the parts.  Thread-safe.
class FanOut {
 public:
  using Done = absl::AnyInvocable<void(SliceResult result) &&>;
  enum class Ends {
    kWithFirstFailure,
    kWithAll,  // with OK, however the parts ended
  };

  // `reducer`: a name as in reducer.h; "": each rank's value is kept.
  // `done` comes once, within Set of the part that decides.
  FanOut(size_t parts, std::string reducer, Ends ends, Done done);

  // REQUIRES: once for each part.
  void Set(size_t part, SliceResult result);

  // How to cancel a part, once it is under way; what is cancelled already is so
  // at once.
  void Carries(std::shared_ptr<CallTarget> target, uint64_t call);
  void Cancel();

 private:
  SliceResult Combined(std::vector<SliceResult> results) const;

  const std::string reducer_;
  const Ends ends_;

  Mutex mutex_;
  Done done_ ABSL_GUARDED_BY(mutex_);  // null: it has ended
  std::vector<SliceResult> results_ ABSL_GUARDED_BY(mutex_);
  size_t left_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  // Shared: with the handles.
  std::vector<std::pair<std::shared_ptr<CallTarget>, uint64_t>> under_way_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::actor
