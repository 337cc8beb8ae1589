#pragma once

#include <cstddef>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"

#include "common/clock.h"
#include "common/strong_id.h"

namespace cohort::head {

struct LeaseOptions {
  // Silence after which a node is dead.  After half of it, it is suspect.
  absl::Duration timeout = absl::Seconds(10);
  // How often Tick is to be called.
  absl::Duration tick_period = absl::Milliseconds(200);
};

// How long each node has been silent.
//
//   LS-1: silence counts only while the head itself ran: a gap between ticks,
//         or before the first, longer than 2 tick periods is added to every
//         lease; a grant is a full
//         lease; a node is suspect, or dead, only when a tick found it silent
//         for that long and the next one does too, so that renewals which were
//         received by then are handled before.
//
// Thread-compatible; belongs to ClusterState.  Monotonic time only.
class NodeLeases {
 public:
  NodeLeases(LeaseOptions options, const Clock& clock);

  // A full lease from now, for a node that has one or not.
  void Grant(const NodeId& node);
  // A sign of life: as Grant, but nothing for a node without a lease.
  void Renew(const NodeId& node);
  // Its silence does not count any more.
  void Drop(const NodeId& node);

  // What a tick found, in the order of the nodes' ids.
  struct Silent {
    std::vector<NodeId> suspect;  // each once, until it is heard again
    std::vector<NodeId> dead;     // they have no lease afterwards
  };
  Silent Tick();

  size_t size() const { return leases_.size(); }

 private:
  struct Lease {
    absl::Duration ends;  // on the monotonic clock
    // What the last tick found already.
    bool late = false;
    bool expired = false;
    bool suspect = false;  // was told
  };

  const LeaseOptions options_;
  const Clock& clock_;
  absl::flat_hash_map<NodeId, Lease> leases_;
  absl::Duration last_tick_;  // or the construction
};

}  // namespace cohort::head
