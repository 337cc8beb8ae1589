#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <tuple>

#include "common/job_id.h"
#include "common/resources.h"
#include "common/strong_id.h"
#include "head/placement/gang_request.h"
#include "head/state/attempt_table.h"
#include "head/state/node_table.h"

// Who holds the nodes that a request could use.
namespace cohort::head {

// What a job holds of them: by leases, and by orphans, whose room no job's end
// makes free.
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

// Looks at `leases_max` leases at most.  Valid until the tables change.
Holdings FindHoldings(const NodeTable& nodes, const AttemptTable& attempts,
                      const GangRequest& request, int64_t leases_max);

// Whether labels and name let the request use the node.
bool LabelsFit(const NodeSnapshot& node, const GangRequest& request);

}  // namespace cohort::head
