#include "client/wire.h"

#include <string>

#include "rpc/wire_values.h"

namespace cohort::client {
namespace {

v1::ScalingConfig ToWire(const ScalingConfig& scaling) {
  v1::ScalingConfig wire;
  wire.set_num_workers(scaling.num_workers);
  *wire.mutable_resources_per_worker() =
      rpc::ToWire(ResourcesPerWorker(scaling).value());
  wire.set_placement_strategy(
      static_cast<v1::PlacementStrategy>(scaling.placement_strategy));
  wire.mutable_selectors()->Assign(scaling.label_selector.begin(),
                                   scaling.label_selector.end());
  for (const Toleration& toleration : scaling.tolerations) {
    *wire.add_tolerations() = rpc::ToWire(toleration);
  }
  wire.set_accelerator_type(scaling.accelerator_type);
  wire.set_topology_level(scaling.topology.level);
  wire.set_topology_required(scaling.topology.required);
  wire.set_workers_per_node(scaling.workers_per_node);
  return wire;
}

v1::RunConfig ToWire(const RunConfig& run) {
  v1::RunConfig wire;
  wire.set_storage_path(run.storage_path);
  const FailureConfig& failure = run.failure_config;
  wire.set_restart(static_cast<v1::RestartPolicy>(failure.restart));
  if (failure.max_failures.has_value()) {
    wire.set_max_failures(*failure.max_failures);
  }
  wire.set_retry_delay_us(absl::ToInt64Microseconds(failure.retry_delay));
  wire.set_num_to_keep(run.checkpoint_config.num_to_keep.value_or(0));
  if (run.time_limit != absl::InfiniteDuration()) {
    wire.set_time_limit_us(absl::ToInt64Microseconds(run.time_limit));
  }
  wire.set_grace_us(absl::ToInt64Microseconds(run.grace));
  wire.set_preflight(run.preflight);
  wire.set_keep_work(run.keep_work);
  wire.set_isolate_gpus(run.isolate_gpus);
  return wire;
}

}  // namespace

v1::JobSpec ToWire(const JobSpec& spec) {
  v1::JobSpec wire;
  wire.set_name(spec.run_config.name);
  wire.set_namespace_(spec.name_space);
  wire.mutable_labels()->insert(spec.labels.begin(), spec.labels.end());
  wire.set_priority(spec.priority);
  v1::Launch& launch = *wire.mutable_launch();
  launch.mutable_command()->Assign(spec.command.begin(), spec.command.end());
  launch.mutable_environment()->insert(spec.environment.begin(),
                                       spec.environment.end());
  launch.mutable_secrets()->insert(spec.secrets.begin(), spec.secrets.end());
  if (spec.package.has_value()) {
    launch.set_package_hash(std::string(spec.package->bytes()));
  }
  launch.set_working_directory(spec.working_directory);
  *wire.mutable_scaling() = ToWire(spec.scaling_config);
  *wire.mutable_run() = ToWire(spec.run_config);
  for (const Dependency& dependency : spec.after) {
    v1::Dependency* const after = wire.add_after();
    after->set_job_id(dependency.job.bytes());
    after->set_kind(static_cast<v1::DependencyKind>(dependency.kind));
  }
  wire.set_array(spec.array);
  wire.set_hold(spec.hold);
  if (spec.begin > absl::UnixEpoch()) {
    wire.set_start_at_us(absl::ToUnixMicros(spec.begin));
  }
  wire.set_start_in_us(absl::ToInt64Microseconds(spec.begin_in));
  wire.set_comment(spec.comment);
  return wire;
}

v1::ListJobsRequest ToWire(const ListOptions& options) {
  v1::ListJobsRequest wire;
  for (const JobState state : options.states) wire.add_states(state);
  wire.mutable_labels()->insert(options.labels.begin(), options.labels.end());
  wire.set_namespace_(options.name_space);
  if (options.array.has_value()) wire.set_array_id(options.array->bytes());
  wire.set_name(options.name);
  wire.set_id_prefix(options.id_prefix);
  wire.set_fold_arrays(options.fold_arrays);
  for (const JobKind kind : options.kinds) wire.add_kinds(kind);
  return wire;
}

}  // namespace cohort::client
