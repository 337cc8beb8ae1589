#pragma once

#include <cstdint>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"

namespace cohort::actor {

// Whom a handle calls: one actor, whatever carries the call (CallChannel).
// Thread-safe.
class CallTarget {
 public:
  // The result as bytes of the method's Codec, or how the call ended
  // (call_error.h).
  using Done = absl::AnyInvocable<void(absl::StatusOr<std::string> result) &&>;

  virtual ~CallTarget() = default;

  // Calls `method`, a name as in method.h that lives as long as the program.
  // `done` comes exactly once (AC-3), on any thread, perhaps inside this call;
  // it does not block.  Calls of one thread begin in their order (AC-4).
  // Answers a number for Cancel.
  virtual uint64_t Call(const char* method, std::string arguments,
                        Done done) = 0;

  // Nobody waits for that call any more: it ends as CANCELLED unless it has
  // ended.  One that has begun runs to its end.
  virtual void Cancel(uint64_t call) = 0;
};

}  // namespace cohort::actor
