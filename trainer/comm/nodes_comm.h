#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "shm/arena.h"
#include "trainer/comm/comm.h"
#include "trainer/comm/gloo_comm.h"
#include "trainer/comm/node_layout.h"

namespace cohort::trainer {

// A communicator for a gang on several nodes, and why it is that one.
struct NodesComm {
  std::unique_ptr<Comm> comm;
  // "Gloo: each node has one rank"
  std::string description;
};

// Connects ranks of several nodes: hierarchically where a node has two of them
// or more, else all over Gloo.  `place` is this rank's in its node's arena and
// must outlive the communicator; `seat` says where it is.  All ranks choose the
// same.  Errors of ConnectGloo and ShmComm::Create.
absl::StatusOr<NodesComm> ConnectNodes(const GlooCommOptions& options,
                                       const Seat& seat, shm::ArenaPlace& place,
                                       Exchange& exchange);

}  // namespace cohort::trainer
