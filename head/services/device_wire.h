#pragma once

#include "cohort/v1/cluster.pb.h"
#include "head/state/cluster_state.h"

// How a node's devices are shown to clients.  Stateless.
namespace cohort::head {

// How the devices of `wire` are and who holds them, in place of what its record
// says of them.
void ShowDevices(const ClusterState& state, const NodeId& node, v1::Node& wire);

}  // namespace cohort::head
