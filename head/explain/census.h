#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

#include "common/resources.h"
#include "head/placement/gang_request.h"
#include "head/placement/node_form.h"
#include "head/state/node_table.h"

// What keeps the nodes from a request, in numbers.
namespace cohort::head {

// Nodes that one thing keeps from holding a worker of the request, or all of
// them where they must share a node.
struct NodeFailure {
  Misfit::By by = Misfit::By::kResource;
  // The state, taint, GPU model, requirement, level or resource, as text; of
  // kDomain the one that comes nearest: "rack=r1"; of kSpread
  // "different nodes".
  std::string what;
  // Counted here: each node once, under the first of the things that keep it,
  // in the order of Misfit::By; of resources under the one it lacks most.
  int64_t nodes = 0;
  // All that it keeps, those too that are counted under another.
  int64_t nodes_in_all = 0;
  // Of a resource: what the closest and the middle one of `nodes` lack, for all
  // workers where they must share a node; where all are counted elsewhere, of
  // nodes_in_all.  Of kDomain and kSpread: the workers that find no room,
  // though no node may be counted here.
  Amount short_least;
  Amount short_median;
  std::string closest;  // that node's name
  // Of a state: since when the one of these that is longest in it is; of dead
  // ones not told: InfiniteFuture.
  absl::Time since = absl::InfiniteFuture();

  friend bool operator==(const NodeFailure&, const NodeFailure&) = default;
};

//   EX-1: nodes = nodes_that_fit + the sum over failures of their nodes.  With
//         room for the whole gang on those that fit the request fits.
struct Census {
  int64_t nodes = 0;  // all that are known, dead ones too
  int64_t nodes_that_fit = 0;
  // That these hold now, counted up to the gang on each; where each worker must
  // have another node, one on each.
  int64_t workers_that_fit = 0;
  // Those that keep the most nodes first.
  std::vector<NodeFailure> failures;

  friend bool operator==(const Census&, const Census&) = default;
};

// Takes time linear in the nodes' forms and label sets, and in the nodes
// themselves that take no new work; with a selector on `host`, in all nodes.
Census CountNodes(const NodeTable& nodes, const GangRequest& request);

// "resource", "state".
const char* MisfitName(Misfit::By by);

}  // namespace cohort::head
