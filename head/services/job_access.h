#pragma once

#include <string>

#include "absl/status/status.h"

#include "cohort/v1/domain.pb.h"
#include "common/job_id.h"
#include "common/strong_id.h"
#include "head/state/cluster_state.h"
#include "rpc/principal.h"

// What a principal may do with which job, where its role lets it: a rank has
// its own job, and actors that end with that, and may call those of the driver
// that made it; a user the namespaces that are granted (rpc::CheckMayUse).
namespace cohort::head {

// The job of the rank's attempt.  Nil: the head does not know the attempt, or
// the worker that made the credential does not run that process.
JobId JobOfRank(const ClusterState& state, const rpc::Principal& rank);

// Whose rank it is, by the job's Origin; empty of who is no rank.
std::string UserOfRank(const ClusterState& state,
                       const rpc::Principal& principal);

// PERMISSION_DENIED: that driver is not the rank's process, or, of a user who
// is not granted all namespaces, another's.
absl::Status CheckMayDrive(const ClusterState& state,
                           const rpc::Principal& principal,
                           const DriverId& driver);

// PERMISSION_DENIED: the namespace is not granted; of a rank: the job is not an
// actor, not of the rank's own driver, or has a name in another namespace than
// the rank's job.
absl::Status CheckMaySubmit(const ClusterState& state,
                            const rpc::Principal& principal,
                            const std::string& name_space,
                            const v1::JobSpec& spec);

// PERMISSION_DENIED: the namespace of the job or array is not granted; of a
// rank: it is not an actor of a driver in the rank's job.
absl::Status CheckMayUse(const ClusterState& state,
                         const rpc::Principal& principal, const JobId& job);

// As CheckMayUse, for who looks an actor up and calls it: the process of an
// actor, or of tasks, reaches those of its own driver as well.
absl::Status CheckMayCall(const ClusterState& state,
                          const rpc::Principal& principal, const JobId& actor);

}  // namespace cohort::head
