#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "cohort/v1/explain.pb.h"
#include "common/job_id.h"
#include "common/resources.h"
#include "common/strong_id.h"
#include "head/explain/node_trial.h"
#include "head/placement/gang_request.h"
#include "head/placement/node_form.h"
#include "head/state/node_table.h"

// The smallest changes of a request, or of the cluster, that would let it
// start.
namespace cohort::head {

// What a job holds of the nodes that a request could use: by leases, and by
// orphans, whose room no job's end makes free.
struct Holding {
  std::set<NodeId> nodes;
  ResourceSet resources;
  std::set<AttemptId> attempts;  // that have leases; none: all are orphans
  ResourceSet everywhere;        // by leases, on other nodes too
  // Workers of the request that its end makes room for, at most.
  int64_t gain = 0;

  // What a person would rather see end: little.
  auto Size() const {
    return std::make_tuple(everywhere.Get(kGpu), everywhere.Get(kCpu),
                           everywhere.Get(kMemory));
  }
};

struct Holdings {
  std::map<JobId, Holding> jobs;
  // False when more is held than was looked at.
  bool complete = true;
};

// Whether labels and name let the request use the node.
bool LabelsFit(const NodeSnapshot& node, const GangRequest& request);

// One change by itself, after which the planner has a plan.
struct Remedy {
  v1::Remedy told;
  GangRequest request;  // told.of_request(): what is asked for instead
  // Of the cluster: nodes that take new work again, as they are then, as few as
  // can be; a job that ends; or new nodes, as few as can be, each like `model`.
  std::vector<NodeSnapshot> opened;
  std::optional<JobId> ends;
  std::optional<NodeSnapshot> model;
  int64_t count = 0;
};

struct RemedyLimits {
  // Forms of nodes that all plans together may look at, so that 10,000 nodes
  // which all differ cost tens of milliseconds at most.
  int64_t forms_max = 300'000;
  // Jobs whose end is tried.
  int tries_max = 64;
  // New nodes in one change.
  int64_t nodes_max = 10'000;
};

struct Remedies {
  // Smallest first: what changes where ranks may lie, then what takes from
  // them, then what changes the cluster.
  std::vector<Remedy> found;
  // Whether nothing was left out for the limits.
  bool complete = true;
};

//   EX-2: the planner has a plan once any one of them is made, and none for a
//         smaller one of its kind; that is looked at before it is told.
//
// REQUIRES: the planner has no plan for `request` now, `holdings` are its, and
// `trial` is of `nodes`.
Remedies FindRemedies(const NodeTable& nodes, const Holdings& holdings,
                      const GangRequest& request, const RemedyLimits& limits,
                      NodeTrial& trial);

// `remedy.count` nodes like `remedy.model`: idle, with ids that no node has.
std::vector<NodeSnapshot> NewNodes(const Remedy& remedy);

// The part of FindRemedies that changes the cluster: with so many plans at
// most.
void AddClusterRemedies(const NodeTable& nodes, const Holdings& holdings,
                        const GangRequest& request, const RemedyLimits& limits,
                        NodeTrial& trial, int64_t plans, Remedies& remedies);

}  // namespace cohort::head
