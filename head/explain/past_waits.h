#pragma once

#include <optional>
#include <vector>

#include "absl/time/time.h"

#include "cohort/v1/explain.pb.h"
#include "head/explain/wait_history.h"
#include "head/state/cluster_state.h"
#include "head/store/records.h"

namespace cohort::head {

// What kept a job, and when.
//
//   EX-5: told is what kept this job: of the want of room only while it stood
//         in line for it, even if others asked for the same.
//
// At one time, or from its submission on; by when it began.  Takes time linear
// in what is remembered of it and of its shape.
std::vector<v1::WaitReason> PastWaits(const ClusterState& state,
                                      const WaitHistory& history,
                                      const JobRecord& job,
                                      std::optional<absl::Time> at);

}  // namespace cohort::head
