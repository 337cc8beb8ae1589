#pragma once

#include <span>

#include "absl/functional/function_ref.h"

#include "head/placement/placement_index.h"

namespace cohort::head {

// Tries changes on a copy of the nodes, which is made for the first.
// Thread-compatible; the nodes outlive it and do not change.
class NodeTrial {
 public:
  explicit NodeTrial(const PlacementIndex& nodes) : now_(nodes) {}

  // What `ask` says of the nodes when some are, or come, as `changed` says.
  bool Ask(std::span<const NodeSnapshot> changed,
           absl::FunctionRef<bool(const PlacementIndex&)> ask) {
    if (copy_.size() == 0) {
      for (const auto& [form, bucket] : now_.all().buckets()) {
        for (const auto& [id, node] : bucket.nodes) copy_.Put(*node);
      }
    }
    for (const NodeSnapshot& node : changed) copy_.Put(node);
    const bool answer = ask(copy_);
    for (const NodeSnapshot& node : changed) {
      const NodeSnapshot* const now = now_.Find(node.id);
      now == nullptr ? copy_.Remove(node.id) : copy_.Put(*now);
    }
    return answer;
  }

 private:
  const PlacementIndex& now_;
  PlacementIndex copy_;
};

}  // namespace cohort::head
