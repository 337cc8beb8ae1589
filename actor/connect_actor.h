#pragma once

#include "actor/call_channel.h"

namespace cohort::actor {

// ActorConnect over gRPC: to the first address that is "unix:/path" where that
// path is on this machine, else to the first "HOST:PORT".  Unavailable where
// there is neither; InvalidArgument for an address or a secret that cannot be.
ActorConnect ConnectOverGrpc();

}  // namespace cohort::actor
