#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace cohort::trainer {

// Where a rank is: on which node, as what rank of the gang's there.
struct Seat {
  int node = 0;
  int local_rank = 0;
};

// Which ranks of a gang share a node.  Nodes are counted by their first rank.
class NodeLayout {
 public:
  // By rank.  FAILED_PRECONDITION, naming the rank, when a node's ranks do not
  // follow each other, or their local ranks do not.
  static absl::StatusOr<NodeLayout> Of(std::span<const Seat> seats);

  int world() const { return first_.back(); }
  int nodes() const { return static_cast<int>(first_.size()) - 1; }
  int FirstOf(int node) const { return first_[node]; }
  int SizeOf(int node) const { return first_[node + 1] - first_[node]; }
  int NodeOf(int rank) const;
  // Of the node with the fewest ranks, and with the most.
  int smallest() const;
  int largest() const;

 private:
  // By node; the world behind the last.
  std::vector<int> first_ = {0};
};

}  // namespace cohort::trainer
