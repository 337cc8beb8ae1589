#pragma once

#include "cohort/v1/cluster.pb.h"
#include "head/state/cluster_state.h"

// How a node's devices are shown to clients.  Stateless.
namespace cohort::head {

// What its devices are, how they are, and who holds them.
void AddDevices(const ClusterState& state, const NodeRecord& node,
                v1::Node& wire);

}  // namespace cohort::head
