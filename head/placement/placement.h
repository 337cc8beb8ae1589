#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "common/resources.h"
#include "common/strong_id.h"
#include "head/placement/gang_request.h"
#include "head/placement/node_form.h"
#include "head/placement/placement_index.h"

// Where a gang goes: a pure function of what the nodes have left.
//
//   PL-1: a gang holds all of its bundles or none.
//   PL-2: no device and no amount is held twice: a plan never takes more than
//         the nodes have.
//   PL-6: with workers_per_node each node of a plan has exactly so many ranks.
namespace cohort::head {

struct PlannedRank {
  int rank = 0;
  int local_rank = 0;
  std::map<std::string, Amount> devices;  // GPU id -> how much of it

  friend bool operator==(const PlannedRank&, const PlannedRank&) = default;
};

// What one node is to hold.
struct PlannedPart {
  NodeId node;
  std::vector<PlannedRank> ranks;  // ascending

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
  // Not even if every node known were idle and took new work.
  bool never_fits_known_nodes = false;
  // Workers that found no room, at least 1: the request may only fit again once
  // nodes have gained as many (GainedWorkers).
  int64_t missing = 1;

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
// With workers_per_node (PL-6) the strategy can only say that there is one such
// node (STRICT_PACK), or that so many is one (STRICT_SPREAD).
//
// A worker's whole GPUs are devices that nobody has a share of; a fraction
// below 1 is of one device, the one with the least left that still fits; of a
// node's devices suspect ones go last, and fenced ones never (DV-5).  More
// than 1 must be whole: refused otherwise, as is a gang of no workers.
//
// With a topology wish all ranks go to one domain: the smallest that holds the
// gang, by what makes a node small, then by the domain's name.  A wish that is
// not required gives way when no domain holds it.
//
// Takes time linear in the distinct forms of nodes (NodeForm) and in the nodes
// taken, whatever the number of nodes; with selectors, also in the distinct
// label sets; with a topology wish, in the domains; with a selector on `host`
// other than `=` and `in`, in the nodes.
Placement PlaceGang(const PlacementIndex& nodes, const GangRequest& request);
// The same over nodes that are in no index.
Placement PlaceGang(std::span<const NodeSnapshot> nodes,
                    const GangRequest& request);

// Whether there is a plan, without making up the words for a refusal.
bool Fits(const PlacementIndex& nodes, const GangRequest& request);

// What a request that waits would be refused with, as the nodes are now.
Refusal WhyNotNow(const PlacementIndex& nodes, const GangRequest& request);

// Workers of a refused request that a node may hold beyond what it could have
// before it changed, counted as Refusal::missing is.
int64_t GainedWorkers(const GangRequest& request, const NodeSnapshot& node,
                      const NodeForm* before, const NodeForm& after);

}  // namespace cohort::head
