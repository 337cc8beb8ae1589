#pragma once

#include <set>
#include <span>
#include <utility>

#include "head/placement/placement.h"
#include "head/placement/placement_index.h"

namespace cohort::head {

// A copy of nodes on which changes are tried and undone, so that the nodes need
// not be copied for each.  Thread-compatible; the nodes outlive it and do not
// change.
class NodeTrial {
 public:
  explicit NodeTrial(const PlacementIndex& nodes) : now_(nodes) {}

  // Takes in one of the nodes as it is; those left out do not matter.
  void Copy(const NodeSnapshot& node) { copy_.Put(node); }
  void CopyAll() {
    for (const auto& [form, bucket] : now_.all().buckets()) {
      for (const auto& [id, node] : bucket.nodes) Copy(*node);
    }
  }

  // A node that changes or comes, until Undo.
  void Put(NodeSnapshot node) {
    touched_.insert(node.id);
    copy_.Put(std::move(node));
  }
  void Put(std::span<const NodeSnapshot> nodes) {
    for (const NodeSnapshot& node : nodes) Put(node);
  }
  void Undo() {
    for (const NodeId& id : touched_) {
      const NodeSnapshot* const now = now_.Find(id);
      now == nullptr ? copy_.Remove(id) : copy_.Put(*now);
    }
    touched_.clear();
  }

  const PlacementIndex& nodes() const { return copy_; }

 private:
  const PlacementIndex& now_;
  PlacementIndex copy_;
  std::set<NodeId> touched_;
};

}  // namespace cohort::head
