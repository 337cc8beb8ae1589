#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/job_id.h"

namespace cohort::actor {

// What is called: texts that live as long as the program.  A value.
struct CalledMethod {
  // NOLINTNEXTLINE(google-explicit-constructor): most are in no group
  CalledMethod(const char* method, const char* in_group = "",
               uint32_t of_actor = 0)
      : name(method), group(in_group), actor(of_actor) {}

  const char* name;   // as in method.h
  const char* group;  // the concurrency group; "": none
  uint32_t actor;     // which of those that share the process (Spread)
};

// Concurrency groups of ours begin with this.  Their calls do not count as
// pending and are not sent again.
inline constexpr char kOwnGroups[] = "cohort.";
inline constexpr size_t kActorSecretBytes = 32;

// What a process needs to know to call an actor: what a handle is as a value
// that is passed on.  A value.
struct ActorRef {
  JobId job;
  uint32_t slot = 0;
  std::string secret;  // lets callers in
  uint32_t actor = 0;  // which of those that share the process (Spread)
};

// Who carries calls that can be cancelled.  Thread-safe.
class CallCarrier {
 public:
  virtual ~CallCarrier() = default;

  // Nobody waits for that call any more: it ends as CANCELLED unless it has
  // ended.  One that has begun sees it by IsCancelled (is_cancelled.h).
  virtual void Cancel(uint64_t call) = 0;
  // As Cancel, also after it; a process that serves nothing but this call ends.
  virtual void ForceCancel(uint64_t call) { Cancel(call); }
  // The thread waits for that call: brings results here for a moment, where
  // that is faster than to wait for another thread, until `finished`.  Runs
  // Done of any call.
  virtual void Look(uint64_t /*call*/, absl::FunctionRef<bool()> /*finished*/) {
  }
  // What keeps that call from being made yet, for people, as far as it is
  // known; "": nothing.
  virtual std::string WaitReason(uint64_t /*call*/) const { return ""; }
};

// A notice about a call that its process may be running.
enum class CallNotice : uint8_t {
  kNone,
  kCancelled,  // IsCancelled answers true
  kWithdrawn,  // if it has not begun it ends as "withdrawn" at once
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

  // So that others can call the same one; FAILED_PRECONDITION, or why there is
  // no actor: it cannot be passed on.
  virtual absl::StatusOr<ActorRef> Ref() const {
    return absl::FailedPreconditionError("this handle cannot be passed on");
  }
  // Tells the call's process; its end comes as always.  A call that was not
  // sent ends as the notice says.  Nothing where there is no process.
  virtual void Tell(uint64_t /*call*/, CallNotice /*notice*/) {}
};

}  // namespace cohort::actor
