#pragma once

#include "cohort/v1/explain.pb.h"
#include "head/placement/gang_request.h"
#include "head/state/node_table.h"

namespace cohort::head {

// Counts what keeps the nodes from a request: sets the numbers of nodes and
// workers and adds the failures, those that keep the most nodes first.
//
// A node counts once, under the first of the things that keep it, in the order
// of Misfit::By; of resources under the one that it lacks most.  What is told
// of a shortage is of the nodes counted there or, where all are counted
// elsewhere, of all.  Workers that fit are counted up to the gang on each node;
// where each worker must have another node, one on each.
//
//   EX-1: nodes = nodes_that_fit + the sum over failures of their nodes.  With
//         room for the whole gang on those that fit the request fits.
//
// Takes time linear in the nodes' forms and label sets, and in the nodes
// themselves that take no new work; with a selector on `host`, in all nodes.
void CountNodes(const NodeTable& nodes, const GangRequest& request,
                v1::Blocker& blocker);

}  // namespace cohort::head
