#pragma once

#include <vector>

#include "cohort/v1/cluster.pb.h"
#include "head/explain/diagnosis.h"
#include "head/state/cluster_state.h"
#include "head/state/wait.h"

namespace cohort::head {

// Adds what would let a job start, the smallest change first, and whether all
// could be tried.  Each is enough by itself (EX-4): where two things keep the
// job there is none.
//
// REQUIRES: `others` keep it, and `diagnosis`, with remedies, is of its
// request.
void FindChanges(const ClusterState& state, const JobRecord& job,
                 const std::vector<Wait>& others, const Diagnosis& diagnosis,
                 v1::ExplainJobResponse& out);

}  // namespace cohort::head
