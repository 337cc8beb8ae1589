#pragma once

#include <vector>

#include "head/explain/diagnosis.h"
#include "head/explain/explanation.h"
#include "head/explain/named_change.h"
#include "head/state/cluster_state.h"
#include "head/store/records.h"

// What would let a job start.
namespace cohort::head {

struct Changes {
  std::vector<NamedChange> found;  // smallest first
  bool complete = true;            // false: some could not be tried
};

// Each is enough by itself (EX-4): where two things keep the job there is none.
// REQUIRES: `others` keep it, and `full` is of its request.
Changes FindChanges(const ClusterState& state, const JobRecord& job,
                    const std::vector<Wait>& others, const FullDiagnosis& full);

}  // namespace cohort::head
