#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/job_id.h"
#include "common/resources.h"
#include "common/strong_id.h"
#include "head/explain/holdings.h"
#include "head/placement/gang_request.h"
#include "head/placement/placement.h"
#include "head/state/node_table.h"

// The smallest changes of a request, or of the cluster, that would let it
// start.
namespace cohort::head {

// One change by itself, after which the planner has a plan.
struct Remedy {
  // Smallest first: what changes where ranks may lie, then what takes from
  // them, then what changes the cluster.
  enum class Kind : uint8_t {
    kPreferTopology = 1,  // instead of requiring it
    kOtherStrategy = 2,   // that is not strict
    kTolerateTaint = 3,
    kDropSelector = 4,  // one requirement, or all when no single one is enough
    kAnyAccelerator = 5,
    kLessOfResource = 6,  // per worker; the smallest part given up first
    kFewerWorkers = 7,
    kNodeReturns = 8,  // that is silent, dead, unfit, or not registered
    kUndrain = 9,
    kJobEnds = 10,
    kMoreNodes = 11,
    kOtherNodes = 12,  // unlike all that are known
  };
  Kind kind = Kind::kFewerWorkers;
  // The level, strategy, taint, requirement, model or resource; of kMoreNodes
  // the name of a node that they are like.
  std::string subject;
  // kLessOfResource: per worker; kFewerWorkers: workers.  The most that fits.
  Amount from;
  Amount to;
  // kMoreNodes, kOtherNodes: how many, and what each is like; as few as can be.
  int64_t count = 0;
  std::optional<NodeSnapshot> model;
  // kNodeReturns, kUndrain: as few as can be.
  std::vector<NodeId> nodes;
  JobId job;  // kJobEnds: the one that holds least
};

constexpr bool IsOfRequest(Remedy::Kind kind) {
  return kind <= Remedy::Kind::kFewerWorkers;
}

// "FEWER_WORKERS".
const char* RemedyName(Remedy::Kind kind);

// The request after the change.  REQUIRES: IsOfRequest(remedy.kind).
GangRequest Apply(const Remedy& remedy, GangRequest request);

struct RemedyLimits {
  // Forms of nodes that all plans together may look at, so that 10,000 nodes
  // which all differ cost tens of milliseconds at most.
  int64_t forms_max = 300'000;
  // Changes of one kind that are tried.
  int tries_max = 64;
  // New nodes in one change.
  int64_t nodes_max = 10'000;
};

struct Remedies {
  std::vector<Remedy> found;  // smallest first
  // Whether nothing was left out for the limits.
  bool complete = true;
};

//   EX-2: the planner has a plan once any one of them is made, and none for a
//         smaller one of its kind; that is looked at before it is told.
//
// REQUIRES: the planner has no plan for `request` now, and `holdings` are its.
Remedies FindRemedies(const NodeTable& nodes, const Holdings& holdings,
                      const GangRequest& request, RemedyLimits limits = {});

// Nodes as kMoreNodes and kOtherNodes have them: idle, with ids that no node
// has.
std::vector<NodeSnapshot> NewNodes(const Remedy& remedy);

// How many plans may still be made.  Thread-compatible.
class PlanBudget {
 public:
  PlanBudget(int64_t forms_max, int64_t forms_per_plan)
      : left_(forms_max), each_(forms_per_plan) {}

  // False when they are used up.
  bool Take() {
    if (left_ <= 0) return false;
    left_ -= each_;
    return true;
  }
  bool used_up() const { return left_ <= 0; }

 private:
  int64_t left_;
  int64_t each_;
};

// The two halves of FindRemedies.
void AddRequestRemedies(const PlacementIndex& nodes, const GangRequest& request,
                        PlanBudget& budget, Remedies& remedies);
void AddClusterRemedies(const NodeTable& nodes, const Holdings& holdings,
                        const GangRequest& request, const RemedyLimits& limits,
                        PlanBudget& budget, Remedies& remedies);

}  // namespace cohort::head
