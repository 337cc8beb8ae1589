#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"

#include "common/strong_id.h"

namespace cohort::head {

// Nodes that follow another store of this cluster than this head's: a backup
// was restored since, and this head runs on what was there before; or this head
// runs on an older copy of its store (HD-1).  It sends them away, and they try
// again each few seconds.  In no row: a person who restores the store or starts
// the head on the right one is told by the nodes themselves. Thread-compatible;
// belongs to ClusterState.
class LaterStore {
 public:
  // Of at most so many nodes: as many as a cluster has.
  static constexpr size_t kNodesMax = 10'000;
  // One that has not come again for so long is not one any more.
  static constexpr absl::Duration kKept = absl::Minutes(1);

  // `now`: monotonic.
  void Note(const NodeId& node, std::string name, uint64_t term,
            absl::Duration now);
  // It follows this head.
  void Forget(const NodeId& node) { nodes_.erase(node); }

  // It came lately, and goes on with what it holds.
  bool Follows(const NodeId& node, absl::Duration now) const;

  struct Sight {
    uint64_t term = 0;  // the highest of theirs
    std::set<NodeId> nodes;
    std::vector<std::string> names;
  };
  // Nothing when there is none.
  std::optional<Sight> Look(absl::Duration now) const;

 private:
  struct Node {
    std::string name;
    uint64_t term = 0;
    absl::Duration at;
  };
  std::map<NodeId, Node> nodes_;
};

// For people: who follows it, and what to do.
std::string LaterStoreReason(const LaterStore::Sight& sight, uint64_t our_term);

}  // namespace cohort::head
