#pragma once

#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "common/resources.h"
#include "common/strong_id.h"
#include "head/records.h"

// Where a gang goes: a pure function of what the nodes have left.
//
//   PL-1: a gang holds all of its bundles or none.
//   PL-2: no device and no amount is held twice: a plan never takes more than
//         its snapshot has.
namespace cohort::head {

// One GPU of a node.
struct DeviceShare {
  std::string id;
  Amount free;  // what is left of 1

  friend bool operator==(const DeviceShare&, const DeviceShare&) = default;
};

// What one node has now.  Only nodes whose resources may be offered (PL-3) are
// shown to the planner.
struct NodeSnapshot {
  NodeId id;
  std::string name;
  ResourceSet total;
  ResourceSet available;             // GPU included
  std::vector<DeviceShare> devices;  // its GPUs, in the node's order
  std::map<std::string, std::string> labels;
};

struct GangRequest {
  int num_workers = 1;
  ResourceSet per_worker;
  PlacementStrategy strategy = PlacementStrategy::kPack;
};

struct PlannedRank {
  int rank = 0;
  int local_rank = 0;
  std::map<std::string, Amount> devices;  // GPU id -> how much of it

  friend bool operator==(const PlannedRank&, const PlannedRank&) = default;
};

// What one node is to hold: one AttemptPart.
struct PlannedPart {
  NodeId node;
  ResourceSet resources;                  // sum over its ranks, GPU included
  std::map<std::string, Amount> devices;  // sum over its ranks
  std::vector<PlannedRank> ranks;         // ascending

  friend bool operator==(const PlannedPart&, const PlannedPart&) = default;
};

// Parts in the order of node ranks; rank numbers run through them, so rank 0 is
// the first part's first.
struct Plan {
  std::vector<PlannedPart> parts;

  friend bool operator==(const Plan&, const Plan&) = default;
};

struct Refusal {
  // For people, with numbers: what it needs, what fits, what is short where.
  std::string reason;
  // Not even if every node shown were idle.
  bool never_fits_known_nodes = false;

  friend bool operator==(const Refusal&, const Refusal&) = default;
};

using Placement = std::variant<Plan, Refusal>;

// A plan whenever there is one; equal arguments give equal plans.
//
// PACK takes as few nodes as can hold the gang, STRICT_PACK one or none;
// SPREAD deals workers out one a node at a time, as evenly as nodes can hold,
// STRICT_SPREAD puts each on another node or places none.  Among nodes that do
// equally well the smallest goes first, so that big ones stay free for big
// requests, and work without GPUs goes to nodes without GPUs first; then the
// lower node id.
//
// A worker's whole GPUs are devices that nobody has a share of; a fraction
// below 1 is of one device, the one with the least left that still fits.  More
// than 1 must be whole: refused otherwise, as is a gang of no workers.
//
// Takes time linear in nodes plus workers (and n log n to order the nodes).
Placement PlaceGang(std::span<const NodeSnapshot> nodes,
                    const GangRequest& request);

}  // namespace cohort::head
