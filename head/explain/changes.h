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
  bool complete = true;
};

// Each lifts all of `others` and, where there is none, makes room that the job
// gets in spite of the line (EX-4).  REQUIRES: `others` keep it, and `full` is
// of its request.
Changes FindChanges(const ClusterState& state, const JobRecord& job,
                    const std::vector<OtherBlocker>& others,
                    const FullDiagnosis& full);

}  // namespace cohort::head
