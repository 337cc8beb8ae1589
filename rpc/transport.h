#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "rpc/stamp.h"

// The seam between the Router and what carries bytes: gRPC (grpc_server) or the
// simulation (loopback).
namespace cohort::rpc {

// What a transport knows when a call arrives.  Lives during Router::Accept.
struct CallInfo {
  absl::string_view path;
  // The metadata `authorization`; empty when absent.
  absl::string_view authorization;
  std::string peer;
  // Until the deadline; infinite when there is none.
  absl::Duration time_left = absl::InfiniteDuration();
  // The handler of a unary call may run inside OnRead when its strand is idle:
  // the transport has other threads to go on with meanwhile.
  bool lends_thread = false;
};

// How a call ends.
struct Answer {
  absl::Status status;
  // The response of a unary call that ended well.
  std::optional<std::string> message;
  // Sent whatever the status.
  std::optional<Stamp> stamp;
};

// A transport's end of one incoming call.  The Router calls it, one call at a
// time.  Never calls back into the ServerCall from within a method.
class ServerTransport {
 public:
  virtual ~ServerTransport() = default;

  // Asks for the next message; ServerCall::OnRead answers.  At most one open.
  virtual void StartRead() = 0;
  // Sends a message; ServerCall::OnWriteDone answers.  At most one open.
  // `more_follow` is a hint that another write comes at once.
  virtual void StartWrite(std::string message, bool more_follow) = 0;
  // Ends the call: once, with no write open.  The transport may be gone when
  // this returns.
  virtual void Finish(Answer answer) = 0;
};

// The Router's end of one incoming call.  The transport calls it.  Thread-safe.
// None of it runs user code: that is posted to the handler's strand.
class ServerCall {
 public:
  virtual ~ServerCall() = default;

  // The next message, or nullopt: the client will send no more.
  virtual void OnRead(std::optional<absl::string_view> message) = 0;
  virtual void OnWriteDone(bool ok) = 0;
  // The client cancelled or went away, or the deadline passed.  The call is
  // Finish()ed all the same.
  virtual void OnCancelled() = 0;
  // The process that serves is dead, as after SIGKILL: handlers are told
  // nothing, queued ones do not run, the transport is not touched again.
  virtual void Abandon() = 0;
};

}  // namespace cohort::rpc
