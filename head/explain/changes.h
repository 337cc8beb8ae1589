#pragma once

#include <vector>

#include "cohort/v1/cluster.pb.h"
#include "head/explain/diagnosis.h"
#include "head/explain/node_trial.h"
#include "head/state/cluster_state.h"
#include "head/state/wait.h"

namespace cohort::head {

// Adds what would let a job start, the smallest change first, and whether all
// could be tried.  Each is enough by itself: where two things keep the job
// there is none.
//
//   EX-4: a change that is told lets the job start when it is made at once: one
//         of the cluster with which nobody who comes before it could start.
//
// REQUIRES: `others` keep it, `diagnosis` is of its request, with remedies, and
// `trial` of the state's nodes.
void FindChanges(const ClusterState& state, const JobRecord& job,
                 const std::vector<Wait>& others, const Diagnosis& diagnosis,
                 NodeTrial& trial, v1::ExplainJobResponse& out);

}  // namespace cohort::head
