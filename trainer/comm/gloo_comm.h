#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "trainer/comm/comm.h"

namespace cohort::trainer {

struct GlooCommOptions {
  int rank = 0;
  int world = 1;
  uint64_t epoch = 0;
  // The address that peers reach this rank at: a host name or address of this
  // node.  Loopback by default, so that nothing listens on a network unasked.
  std::string hostname = "127.0.0.1";
  // Instead of `hostname`, when set: an interface, as in "eth0".
  std::string interface = {};
  // To find and connect to all peers.
  absl::Duration connect_deadline = absl::Seconds(30);
};

// A communicator over Gloo's TCP transport, for ranks on several nodes.
//
// Its destructor waits up to a second for peers that are not done yet, so that
// the last bytes reach them.  SIGPIPE is ignored in this process from then on,
// unless it has a handler: Gloo writes to connections that a peer has closed.
//
// Built only where Gloo is found (target trainer_comm_gloo).  `exchange` is
// used during the call only.  INVALID_ARGUMENT for bad options; UNAVAILABLE
// when the address cannot be bound or a peer not reached; DEADLINE_EXCEEDED;
// errors of `exchange`.
absl::StatusOr<std::unique_ptr<Comm>> ConnectGloo(
    const GlooCommOptions& options, Exchange& exchange);

}  // namespace cohort::trainer
