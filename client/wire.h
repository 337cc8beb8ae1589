#pragma once

#include "absl/status/statusor.h"

#include "client/event.h"
#include "client/job.h"
#include "client/node.h"
#include "cohort/v1/cluster.pb.h"

// The public values as the wire writes them.  What a newer head says and this
// program does not know becomes kUnknown; ids that are no ids are an INTERNAL
// error.
namespace cohort::client {

// REQUIRES: ValidateJobSpec(spec).ok().
v1::JobSpec ToWire(const JobSpec& spec);

// Without its page.
v1::ListJobsRequest ToWire(const ListOptions& options);

JobState JobStateFromWire(v1::JobState state);
absl::StatusOr<Job> FromWire(const v1::Job& wire);
absl::StatusOr<Node> FromWire(const v1::Node& wire);
absl::StatusOr<NodeDetails> FromWire(const v1::GetNodeResponse& wire);
absl::StatusOr<Event> FromWire(const v1::Event& wire);
absl::StatusOr<ClusterResources> FromWire(const v1::GetResourcesResponse& wire);
absl::StatusOr<ClusterStatus> FromWire(const v1::GetStatusResponse& wire);

}  // namespace cohort::client
