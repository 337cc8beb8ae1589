#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"

#include "cohort/v1/cluster.pb.h"
#include "head/cluster_state.h"
#include "head/records.h"

// cluster.proto to the head's domain and back.  Stateless.
namespace cohort::head {

// InvalidArgument when an enum or an amount in it cannot be; what a job may ask
// for is ValidateJobSpec's.
absl::StatusOr<JobSpec> FromWire(const v1::JobSpec& wire);
v1::JobSpec ToWire(const JobSpec& spec, const std::string& name_space);

// How many there are in each state, those without anybody too.
std::map<std::string, int64_t> NodesByState(const ClusterState& state);
std::map<std::string, int64_t> JobsByState(const ClusterState& state);

// A job as lists show it; with `whole` also its spec and its ranks.
v1::Job JobToWire(const ClusterState& state, const JobRecord& job, bool whole);
v1::Node NodeToWire(const ClusterState& state, const NodeRecord& node);

}  // namespace cohort::head
