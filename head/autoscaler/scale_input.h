#pragma once

#include <string>

#include "absl/time/time.h"

#include "head/autoscaler/scale_plan.h"
#include "head/state/cluster_state.h"

// What a plan is made from, taken from the state.  What it points to is shared
// or its own: the plan may be made elsewhere, while the state goes on.  `input`
// has its types already.
namespace cohort::head {

// Or its id, where it has none.
std::string NameOfJob(const ClusterState& state, const JobId& id);

// Instances that are on their way in or out.
void AddInstances(const ClusterState& state, ScaleInput& input);
// The first asks in line, and the room that people want.
void AddDemand(const ClusterState& state, ScaleInput& input);
// What the time limits of running jobs free on the nodes that are there, and
// when at the latest.
void AddReleases(const ClusterState& state, absl::Time now, ScaleInput& input);

}  // namespace cohort::head
