#pragma once

#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"

#include "rpc/principal.h"

namespace cohort::rpc {

// What a handler may know about the call that it answers.
//
// Handlers get it as a shared_ptr (owners: the call and what waits for
// something on its behalf) and may keep it after they returned.  Thread-safe.
class CallContext {
 public:
  virtual ~CallContext() = default;

  virtual const Principal& principal() const = 0;
  // Where the call came from, for log lines: "ipv4:127.0.0.1:40112", "unix:".
  virtual const std::string& peer() const = 0;
  // Until the caller stops waiting; infinite when it set no deadline, never
  // negative.
  virtual absl::Duration DeadlineLeft() const = 0;
  // Whether nobody waits for the answer any more: the caller cancelled, went
  // away, or its deadline passed.
  virtual bool IsCancelled() const = 0;
  // Runs `callback` on the handler's strand when the call is cancelled before
  // it was answered; at once (posted) when it already is.  At most one: a
  // second call replaces the first.  Dropped unrun once the call is answered.
  virtual void OnCancel(absl::AnyInvocable<void() &&> callback) = 0;
};

}  // namespace cohort::rpc
