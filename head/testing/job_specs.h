#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "common/job_id.h"
#include "common/resources.h"
#include "head/state/job_spec.h"
#include "rpc/wire_values.h"

// Specs of jobs, for tests.
namespace cohort::head {

inline void SetCommand(JobSpec& spec, const std::vector<std::string>& command) {
  spec.mutable_launch()->mutable_command()->Assign(command.begin(),
                                                   command.end());
}

inline void SetResources(JobSpec& spec, const ResourceSet& per_worker) {
  *spec.mutable_scaling()->mutable_resources_per_worker() =
      rpc::ToWire(per_worker);
}

inline void SetResource(JobSpec& spec, absl::string_view name, Amount amount) {
  ResourceSet per_worker = ResourcesPerWorker(spec);
  per_worker.Set(name, amount);
  SetResources(spec, per_worker);
}

inline void AddAfter(JobSpec& spec, const JobId& job,
                     DependencyKind kind = v1::DEPENDENCY_KIND_OK) {
  Dependency& dependency = *spec.add_after();
  dependency.set_job_id(job.bytes());
  dependency.set_kind(kind);
}

inline void SetTopology(JobSpec& spec, const std::string& level,
                        bool required) {
  spec.mutable_scaling()->set_topology_level(level);
  spec.mutable_scaling()->set_topology_required(required);
}

// Of one worker, and what FillJobSpec says.
inline JobSpec OneWorker() {
  JobSpec spec;
  spec.mutable_scaling()->set_num_workers(1);
  FillJobSpec(spec);
  return spec;
}

}  // namespace cohort::head
