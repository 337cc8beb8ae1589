#pragma once

#include <vector>

#include "cohort/v1/cluster.pb.h"
#include "head/explain/diagnosis.h"
#include "head/explain/node_trial.h"
#include "head/placement/gang_request.h"
#include "head/state/cluster_state.h"
#include "head/state/wait.h"

namespace cohort::head {

// What waits: a job, or slots of one that runs.
struct Asked {
  const JobRecord& job;
  GangRequest request;
  std::vector<int> slots;  // ascending; empty: the whole job
};

// Adds what would let it start, the smallest change first, and whether all
// could be tried.  Each is enough by itself: where two things keep it there is
// none.  Of what slots ask for a person can change how many there are.
//
//   EX-4: each change that is told, made now and alone, starts it.  A change of
//         the cluster is told only if nobody before it in line could use it.
//
// REQUIRES: `others` keep it, `diagnosis` is of its request, with remedies, and
// `trial` of the state's nodes.
void FindChanges(const ClusterState& state, const Asked& asked,
                 const std::vector<Wait>& others, const Diagnosis& diagnosis,
                 NodeTrial& trial, v1::ExplainJobResponse& out);

}  // namespace cohort::head
