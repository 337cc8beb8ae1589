#pragma once

#include <cstdint>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"

namespace cohort::actor {

// What is called: texts that live as long as the program.  A value.
struct CalledMethod {
  // NOLINTNEXTLINE(google-explicit-constructor): most are in no group
  CalledMethod(const char* method, const char* in_group = "")
      : name(method), group(in_group) {}

  const char* name;   // as in method.h
  const char* group;  // the concurrency group; "": none
};

// Who carries calls that can be cancelled.  Thread-safe.
class CallCarrier {
 public:
  virtual ~CallCarrier() = default;

  // Nobody waits for that call any more: it ends as CANCELLED unless it has
  // ended.  One that has begun runs to its end.
  virtual void Cancel(uint64_t call) = 0;
};

// Whom a handle calls: one actor, whatever carries the call (CallChannel).
class CallTarget : public CallCarrier {
 public:
  // The result as bytes of the method's Codec, or how the call ended
  // (call_error.h).
  using Done = absl::AnyInvocable<void(absl::StatusOr<std::string> result) &&>;

  // Calls `method`.  `done` comes exactly once (AC-3), on any thread, perhaps
  // inside this call; it does not block.  Calls of one thread and group begin
  // in their order (AC-4).  Answers a number for Cancel.
  virtual uint64_t Call(CalledMethod method, std::string arguments,
                        Done done) = 0;
};

}  // namespace cohort::actor
