#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

#include "cohort/v1/cluster.pb.h"
#include "head/state/cluster_state.h"
#include "head/state/job_query.h"
#include "head/store/records.h"

// cluster.proto to the head's domain and back.  Stateless.
namespace cohort::head {

// Which life of the head speaks.
v1::Stamp StampOf(const ClusterRecord& cluster);

// InvalidArgument when a token is none of ours, an id or a state no such.
absl::StatusOr<JobQuery> FromWire(const v1::ListJobsRequest& wire);
std::string PageToken(uint64_t next);

// A job as lists show it, an actor with its processes and what it asks
// for; with `whole` also its spec and its ranks.
v1::Job JobToWire(const ClusterState& state, const JobRecord& job, bool whole);
// An array as a whole, as lists show it or with its spec.
v1::Job ArrayToWire(const ClusterState& state, const ArrayTable::Entry& array,
                    bool whole);
// A job, or an array as a whole; none when nothing here has this id.
std::optional<v1::Job> NamedToWire(const ClusterState& state, const JobId& id);
v1::Rank RankToWire(const ClusterState& state, const Process& process);
v1::Event EventToWire(const ClusterState& state, EventRecord event);
v1::Node NodeToWire(const ClusterState& state, const NodeRecord& node);
// With what the node has.
v1::GetNodeResponse WholeNodeToWire(const ClusterState& state,
                                    const NodeRecord& node);
// Errors as ValidateDrainOrder.
absl::StatusOr<DrainOrder> FromWire(const v1::DrainNodeRequest& wire);

}  // namespace cohort::head
