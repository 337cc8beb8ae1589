#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "common/resources.h"
#include "head/placement/gang_request.h"
#include "head/placement/node_form.h"
#include "head/placement/placement_index.h"

// The planner's view of the nodes: those that can hold workers of one request,
// in tiers of equals.
namespace cohort::head {

// What one request makes of each form and label set, worked out once.
// Thread-compatible; for the length of one plan, in which no form goes.
class Fit {
 public:
  explicit Fit(const GangRequest& request) : request_(request) {}

  // About so many forms come.
  void Reserve(size_t forms) { capacities_.reserve(forms); }
  // Workers that a node of this form holds now, at most the gang.
  int64_t CapacityOf(const NodeForm& form);
  // The same were it idle and took new work.
  int64_t IdleCapacityOf(const NodeForm& form);
  bool Selects(const Labels& labels);
  // The nodes of a bucket that the selector allows: sets that share none.
  std::vector<const NodesById*> SelectedIn(const NodeGroup::Bucket& bucket);
  int64_t CountIn(const NodeGroup::Bucket& bucket);

 private:
  const GangRequest& request_;
  absl::flat_hash_map<const NodeForm*, int64_t> capacities_;
  absl::flat_hash_map<const NodeForm*, int64_t> idle_capacities_;
  absl::flat_hash_map<const Labels*, bool> selects_;
};

// Where a request may look: all nodes of an index, or those that its selector
// names.  Thread-compatible; `nodes` outlives it and does not change.
class Scope {
 public:
  Scope(const PlacementIndex& nodes, const LabelSelector& selector);

  const NodeGroup& nodes() const;
  const Domains& DomainsOf(const std::string& level) const;
  // Whether the cluster has no node at all.
  bool IsEmpty() const { return index_.size() == 0; }

 private:
  const PlacementIndex& index_;
  std::optional<NodeGroup> named_;
  mutable Domains named_domains_;
};

// Nodes that do equally well for a request, by id.  Hands them out.
class Tier {
 public:
  Tier(int64_t node_capacity, std::vector<const NodesById*> nodes);

  // Of each node.
  int64_t capacity;
  // Nodes not handed out yet.
  int64_t left() const { return left_; }
  // The lowest id.  REQUIRES: left() > 0.
  const NodeSnapshot* Next();
  // Takes in the nodes of one that does as well.  REQUIRES: nothing was handed
  // out yet.
  void Join(Tier other);

 private:
  using Range = std::pair<NodesById::const_iterator, NodesById::const_iterator>;
  static bool After(const Range& a, const Range& b);

  std::vector<const NodesById*> sets_;
  int64_t left_ = 0;
  std::vector<Range> heap_;  // built by the first Next
};

// Those where a part of a GPU breaks no whole one first, then small before big:
// what it would keep from others.  No node in them has capacity 0.
std::vector<Tier> FindTiers(const NodeGroup& nodes, const GangRequest& request,
                            Fit& fit);

// Room for workers on some nodes.
struct Room {
  int64_t workers = 0;  // all together
  int64_t nodes = 0;    // that hold at least one
  int64_t most = 0;     // on one node

  void Add(int64_t capacity, int64_t nodes_like_it);
  bool Holds(const GangRequest& request) const;
  // Workers that find no room; 0 when it holds the gang.
  int64_t MissingFor(const GangRequest& request) const;
};

Room RoomIn(const std::vector<Tier>& tiers);
// `idle`: as if all nodes were.
Room RoomIn(const NodeGroup& nodes, Fit& fit, bool idle);

// What orders domains: as it does nodes.
struct DomainSize {
  int64_t broken = 0;
  Amount gpus;
  int64_t capacity = 0;
  Amount cpus;
  Amount memory;

  friend auto operator<=>(const DomainSize&, const DomainSize&) = default;
};

// Nothing when they do not hold the gang.
std::optional<DomainSize> SizeOf(const NodeGroup& nodes,
                                 const GangRequest& request, Fit& fit);

// Whether not all nodes together count, but those of one domain.
bool IsBoundToADomain(const GangRequest& request);
// Whether ranks may be on one node.
bool MayShareANode(const GangRequest& request);
// Whether all ranks must be on one node.
bool OnOneNode(const GangRequest& request);

}  // namespace cohort::head
