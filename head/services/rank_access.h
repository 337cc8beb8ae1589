#pragma once

#include <string>

#include "absl/status/status.h"

#include "cohort/v1/domain.pb.h"
#include "common/job_id.h"
#include "common/strong_id.h"
#include "head/state/cluster_state.h"
#include "rpc/principal.h"

// What a rank's credential is good for beside its own job: actors that end
// with that job.  All but the first answer OK to
// others than ranks.
namespace cohort::head {

// The job of the rank's attempt.  Nil: the head does not know the attempt, or
// the worker that made the credential does not run that process.
JobId JobOfRank(const ClusterState& state, const rpc::Principal& rank);

// PERMISSION_DENIED: that driver is not the rank's process.
absl::Status CheckMayDrive(const ClusterState& state,
                           const rpc::Principal& principal,
                           const DriverId& driver);

// PERMISSION_DENIED: the job is not an actor, not of the rank's own driver, or
// has a name in another namespace than the rank's job.
absl::Status CheckMaySubmit(const ClusterState& state,
                            const rpc::Principal& principal,
                            const std::string& name_space,
                            const v1::JobSpec& spec);

// PERMISSION_DENIED: it is not an actor of a driver in the rank's job.
absl::Status CheckMayUse(const ClusterState& state,
                         const rpc::Principal& principal, const JobId& actor);

}  // namespace cohort::head
