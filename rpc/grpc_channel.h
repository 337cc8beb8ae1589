#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "rpc/channel.h"
#include "rpc/credential.h"

namespace cohort::rpc {

struct GrpcChannelOptions {
  ChannelOptions channel;
  // Between attempts to connect.  A restarted head is met within a second.
  absl::Duration reconnect_min = absl::Milliseconds(100);
  absl::Duration reconnect_max = absl::Seconds(1);
  // How long one attempt has, with its handshake.  Of those that come together
  // by thousands, longer: a server that makes all their handshakes at once
  // would finish none in time, again and again.
  absl::Duration connect_timeout = absl::Seconds(1);
  // As GrpcServerOptions, while calls are in flight.
  absl::Duration keepalive_time = absl::Seconds(20);
  absl::Duration keepalive_timeout = absl::Seconds(10);
};

// The way to the server at `address` ("HOST:PORT" or "unix:/path") over gRPC.
// Connects later; over TCP with TLS, and shows the secret once the server has
// shown a certificate of the credential's authority.  InvalidArgument for an
// address that cannot be parsed; FailedPrecondition (reason "insecure") for a
// credential without an authority and a host that is not loopback.
//
// An answer that announces another authority is learned (LearnAuthority).  Once
// the server shows that one alone, the call that finds out fails with
// UNAVAILABLE (reason "authority_changed") if the credential's file has it, and
// the next connects by it.
//
// Destroying the channel cancels its calls and waits until gRPC has let go of
// them: see Channel for where not to.
absl::StatusOr<std::unique_ptr<Channel>> NewGrpcChannel(
    const std::string& address, const Credential& credential,
    GrpcChannelOptions options = {});

}  // namespace cohort::rpc
