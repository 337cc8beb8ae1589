#include "client/wire.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/status_macros.h"
#include "rpc/wire_values.h"

namespace cohort::client {
namespace {

// A head's mistake is not the caller's: INTERNAL, whatever the decoder said.
absl::Status HeadsMistake(const absl::Status& status) {
  return absl::InternalError(
      absl::StrCat("the head's answer makes no sense: ", status.message()));
}

template <typename Id>
absl::StatusOr<Id> IdFromWire(const std::string& bytes) {
  absl::StatusOr<Id> id = Id::FromBytes(bytes);
  if (!id.ok()) return HeadsMistake(id.status());
  return id;
}

// Whatever the head says: a sum over many nodes is beyond what one may offer.
ResourceSet ResourcesFromWire(const v1::ResourceSet& wire) {
  ResourceSet resources;
  for (const v1::ResourceSet::Amount& amount : wire.amounts()) {
    resources.Set(amount.name(),
                  Amount::FromTenThousandths(amount.ten_thousandths()));
  }
  return resources;
}

v1::PlacementStrategy ToWire(PlacementStrategy strategy) {
  switch (strategy) {
    case PlacementStrategy::kPack:
      return v1::PLACEMENT_STRATEGY_PACK;
    case PlacementStrategy::kSpread:
      return v1::PLACEMENT_STRATEGY_SPREAD;
    case PlacementStrategy::kStrictPack:
      return v1::PLACEMENT_STRATEGY_STRICT_PACK;
    case PlacementStrategy::kStrictSpread:
      return v1::PLACEMENT_STRATEGY_STRICT_SPREAD;
  }
  return v1::PLACEMENT_STRATEGY_UNSPECIFIED;
}

PlacementStrategy FromWire(v1::PlacementStrategy strategy) {
  switch (strategy) {
    case v1::PLACEMENT_STRATEGY_SPREAD:
      return PlacementStrategy::kSpread;
    case v1::PLACEMENT_STRATEGY_STRICT_PACK:
      return PlacementStrategy::kStrictPack;
    case v1::PLACEMENT_STRATEGY_STRICT_SPREAD:
      return PlacementStrategy::kStrictSpread;
    default:
      return PlacementStrategy::kPack;
  }
}

RestartPolicy FromWire(v1::RestartPolicy policy) {
  switch (policy) {
    case v1::RESTART_POLICY_ONE:
      return RestartPolicy::kOne;
    case v1::RESTART_POLICY_NONE:
      return RestartPolicy::kNone;
    default:
      return RestartPolicy::kAll;
  }
}

v1::RestartPolicy ToWire(RestartPolicy policy) {
  switch (policy) {
    case RestartPolicy::kAll:
      return v1::RESTART_POLICY_ALL;
    case RestartPolicy::kOne:
      return v1::RESTART_POLICY_ONE;
    case RestartPolicy::kNone:
      return v1::RESTART_POLICY_NONE;
  }
  return v1::RESTART_POLICY_UNSPECIFIED;
}

RankState FromWire(v1::ProcessState state) {
  switch (state) {
    case v1::PROCESS_STATE_PENDING:
      return RankState::kPending;
    case v1::PROCESS_STATE_STARTING:
      return RankState::kStarting;
    case v1::PROCESS_STATE_RUNNING:
      return RankState::kRunning;
    case v1::PROCESS_STATE_EXITED:
    case v1::PROCESS_STATE_ENDED:
      return RankState::kExited;
    default:
      return RankState::kUnknown;
  }
}

ExitStatus FromWire(const v1::ExitStatus& wire) {
  return {.code = wire.code(),
          .signal = wire.signal(),
          .oom_killed = wire.oom_killed(),
          .detail = wire.detail()};
}

absl::StatusOr<Rank> FromWire(const v1::Rank& wire) {
  Rank rank;
  rank.rank = wire.rank();
  rank.local_rank = wire.local_rank();
  if (!wire.node_id().empty()) {
    COHORT_ASSIGN_OR_RETURN(rank.node, IdFromWire<NodeId>(wire.node_id()));
  }
  rank.node_name = wire.node_name();
  if (wire.pid() != 0) rank.pid = wire.pid();
  rank.state = FromWire(wire.state());
  if (wire.has_exit()) rank.exit = FromWire(wire.exit());
  rank.incarnation = wire.incarnation();
  rank.failures = wire.failures();
  rank.gpu_ids.assign(wire.gpu_ids().begin(), wire.gpu_ids().end());
  return rank;
}

std::optional<absl::Time> TimeFromWire(bool is_set,
                                       const google::protobuf::Timestamp& t) {
  if (!is_set) return std::nullopt;
  return rpc::FromWire(t);
}

std::optional<FailureClass> FromWire(v1::FailureClass failure_class) {
  switch (failure_class) {
    case v1::FAILURE_CLASS_USER:
      return FailureClass::kUser;
    case v1::FAILURE_CLASS_INFRA:
      return FailureClass::kInfra;
    case v1::FAILURE_CLASS_PREEMPTED:
      return FailureClass::kPreempted;
    case v1::FAILURE_CLASS_OOM:
      return FailureClass::kOom;
    case v1::FAILURE_CLASS_HANG:
      return FailureClass::kHang;
    case v1::FAILURE_CLASS_TIMEOUT:
      return FailureClass::kTimeout;
    default:
      return std::nullopt;
  }
}

v1::JobState ToWire(JobState state) {
  switch (state) {
    case JobState::kPending:
      return v1::JOB_STATE_PENDING;
    case JobState::kStarting:
      return v1::JOB_STATE_STARTING;
    case JobState::kRunning:
      return v1::JOB_STATE_RUNNING;
    case JobState::kStopping:
      return v1::JOB_STATE_STOPPING;
    case JobState::kSucceeded:
      return v1::JOB_STATE_SUCCEEDED;
    case JobState::kFailed:
      return v1::JOB_STATE_FAILED;
    case JobState::kStopped:
      return v1::JOB_STATE_STOPPED;
    case JobState::kUnknown:
      break;
  }
  return v1::JOB_STATE_UNSPECIFIED;
}

// Which nodes a job may have.
void WishesFromWire(const v1::ScalingConfig& wire, Job& job) {
  job.selectors.assign(wire.selectors().begin(), wire.selectors().end());
  for (const v1::Toleration& each : wire.tolerations()) {
    job.tolerations.push_back(rpc::FromWire(each));
  }
  job.accelerator_type = wire.accelerator_type();
  job.topology = {.level = wire.topology_level(),
                  .required = wire.topology_required()};
}

void WishesToWire(const ScalingConfig& scaling, v1::ScalingConfig& wire) {
  for (const std::string& selector : scaling.selectors) {
    wire.add_selectors(selector);
  }
  for (const Toleration& toleration : scaling.tolerations) {
    *wire.add_tolerations() = rpc::ToWire(toleration);
  }
  wire.set_accelerator_type(scaling.accelerator_type);
  wire.set_topology_level(scaling.topology.level);
  wire.set_topology_required(scaling.topology.required);
}

// When the job starts and ends.
void OrderToWire(const JobSpec& spec, v1::JobSpec& wire) {
  const RunConfig& run = spec.run_config;
  v1::RunConfig& out = *wire.mutable_run();
  if (run.time_limit != absl::InfiniteDuration()) {
    out.set_time_limit_us(absl::ToInt64Microseconds(run.time_limit));
  }
  out.set_grace_us(absl::ToInt64Microseconds(run.grace));
  out.set_retry_delay_us(
      absl::ToInt64Microseconds(run.failure_config.retry_delay));
  out.set_preflight(run.preflight);
  for (const auto& [key, value] : spec.labels) {
    (*wire.mutable_labels())[key] = value;
  }
  wire.set_namespace_(spec.name_space);
  wire.set_priority(spec.priority);
  wire.set_hold(spec.hold);
  wire.set_comment(spec.comment);
  if (spec.begin > absl::UnixEpoch()) {
    wire.set_start_at_us(absl::ToUnixMicros(spec.begin));
  }
  wire.set_start_in_us(absl::ToInt64Microseconds(spec.begin_in));
  for (const Dependency& dependency : spec.after) {
    v1::Dependency* const after = wire.add_after();
    after->set_job_id(dependency.job.bytes());
    after->set_kind(dependency.kind == DependencyKind::kAny
                        ? v1::DEPENDENCY_KIND_ANY
                        : v1::DEPENDENCY_KIND_OK);
  }
  wire.set_array(spec.array);
}

absl::Status OrderFromWire(const v1::JobSpec& wire, Job& job) {
  const v1::RunConfig& run = wire.run();
  if (run.time_limit_us() != 0) {
    job.time_limit = absl::Microseconds(run.time_limit_us());
  }
  job.grace = absl::Microseconds(run.grace_us());
  job.retry_delay = absl::Microseconds(run.retry_delay_us());
  for (const v1::Dependency& each : wire.after()) {
    Dependency& dependency = job.after.emplace_back();
    COHORT_ASSIGN_OR_RETURN(dependency.job, IdFromWire<JobId>(each.job_id()));
    dependency.kind = each.kind() == v1::DEPENDENCY_KIND_ANY
                          ? DependencyKind::kAny
                          : DependencyKind::kOk;
  }
  if (wire.start_at_us() > 0) {
    job.begin = absl::FromUnixMicros(wire.start_at_us());
  }
  job.array_spec = wire.array();
  job.preflight_wanted = run.preflight();
  return absl::OkStatus();
}

void FailuresFromWire(const v1::Job& wire, Job& job) {
  job.failure_class = FromWire(wire.failure_class());
  job.causes.assign(wire.causes().begin(), wire.causes().end());
  job.stderr_tail = wire.stderr_tail();
  for (const v1::Job::ClassCount& each : wire.failures_by_class()) {
    const std::optional<FailureClass> failure_class =
        FromWire(each.failure_class());
    if (failure_class.has_value()) {
      job.failures_by_class[*failure_class] = each.count();
    }
  }
}

PreflightVerdict FromWire(v1::PreflightVerdict verdict) {
  switch (verdict) {
    case v1::PREFLIGHT_VERDICT_PASSED:
      return PreflightVerdict::kPassed;
    case v1::PREFLIGHT_VERDICT_SLOW:
      return PreflightVerdict::kSlow;
    case v1::PREFLIGHT_VERDICT_FAILED:
      return PreflightVerdict::kFailed;
    default:
      return PreflightVerdict::kUnknown;
  }
}

Preflight FromWire(const v1::Preflight& wire) {
  return {.attempt = wire.attempt(),
          .verdict = FromWire(wire.report().verdict()),
          .summary = wire.report().summary(),
          .json = wire.report().json(),
          .at = TimeFromWire(wire.has_at(), wire.at())};
}

ArrayStatus FromWire(const v1::ArrayStatus& wire) {
  ArrayStatus array;
  array.size = wire.size();
  if (wire.at_once() != 0) array.at_once = wire.at_once();
  for (const v1::ArrayStatus::StateCount& each : wire.counts()) {
    array.counts[JobStateFromWire(each.state())] += each.count();
  }
  return array;
}

Drain FromWire(const v1::Drain& wire) {
  return {.reason = wire.reason(),
          .principal = wire.principal(),
          .asked_at = TimeFromWire(wire.has_asked_at(), wire.asked_at()),
          .deadline = TimeFromWire(wire.has_deadline(), wire.deadline())};
}

absl::StatusOr<HeldAttempt> FromWire(const v1::HeldAttempt& wire) {
  HeldAttempt held;
  COHORT_ASSIGN_OR_RETURN(held.attempt,
                          IdFromWire<AttemptId>(wire.attempt_id()));
  if (!wire.job_id().empty()) {
    COHORT_ASSIGN_OR_RETURN(held.job, IdFromWire<JobId>(wire.job_id()));
  }
  held.job_name = wire.job_name();
  held.number = wire.number();
  held.state = wire.state();
  held.resources = ResourcesFromWire(wire.resources());
  for (const v1::Rank& rank : wire.ranks()) {
    COHORT_ASSIGN_OR_RETURN(held.ranks.emplace_back(), FromWire(rank));
  }
  return held;
}

void SpecFromWire(const v1::JobSpec& wire, Job& job) {
  job.command.assign(wire.launch().command().begin(),
                     wire.launch().command().end());
  job.resources_per_worker =
      ResourcesFromWire(wire.scaling().resources_per_worker());
  job.placement_strategy = FromWire(wire.scaling().placement_strategy());
  job.comment = wire.comment();
  job.storage_path = wire.run().storage_path();
  job.restart = FromWire(wire.run().restart());
  job.max_failures = wire.run().max_failures();
}

void ExitFromWire(const v1::Job& wire, Job& job) {
  if (wire.has_exit()) job.exit = FromWire(wire.exit());
  if (job.state == JobState::kSucceeded && !job.exit.has_value()) {
    job.exit = ExitStatus();
  }
  if (wire.has_exit() && wire.failed_rank() >= 0) {
    job.failed_rank = wire.failed_rank();
  }
}

}  // namespace

JobState JobStateFromWire(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_PENDING:
      return JobState::kPending;
    case v1::JOB_STATE_STARTING:
      return JobState::kStarting;
    case v1::JOB_STATE_RUNNING:
      return JobState::kRunning;
    case v1::JOB_STATE_STOPPING:
      return JobState::kStopping;
    case v1::JOB_STATE_SUCCEEDED:
      return JobState::kSucceeded;
    case v1::JOB_STATE_FAILED:
      return JobState::kFailed;
    case v1::JOB_STATE_STOPPED:
      return JobState::kStopped;
    default:
      return JobState::kUnknown;
  }
}

v1::JobSpec ToWire(const JobSpec& spec) {
  v1::JobSpec wire;
  const RunConfig& run = spec.run_config;
  wire.set_name(run.name);
  v1::Launch& launch = *wire.mutable_launch();
  launch.mutable_command()->Assign(spec.command.begin(), spec.command.end());
  launch.mutable_environment()->insert(spec.environment.begin(),
                                       spec.environment.end());
  OrderToWire(spec, wire);
  v1::ScalingConfig& scaling = *wire.mutable_scaling();
  WishesToWire(spec.scaling_config, scaling);
  scaling.set_num_workers(spec.scaling_config.num_workers);
  *scaling.mutable_resources_per_worker() =
      rpc::ToWire(ResourcesPerWorker(spec.scaling_config).value());
  scaling.set_placement_strategy(
      ToWire(spec.scaling_config.placement_strategy));
  wire.mutable_run()->set_storage_path(run.storage_path);
  wire.mutable_run()->set_restart(ToWire(run.failure_config.restart));
  if (run.failure_config.max_failures.has_value()) {
    wire.mutable_run()->set_max_failures(*run.failure_config.max_failures);
  }
  wire.mutable_run()->set_num_to_keep(
      run.checkpoint_config.num_to_keep.value_or(0));
  if (spec.package.has_value()) {
    launch.set_package_hash(std::string(spec.package->bytes()));
  }
  return wire;
}

v1::ListJobsRequest ToWire(const ListOptions& options) {
  v1::ListJobsRequest wire;
  for (const JobState state : options.states) wire.add_states(ToWire(state));
  for (const auto& [key, value] : options.labels) {
    (*wire.mutable_labels())[key] = value;
  }
  wire.set_namespace_(options.name_space);
  if (options.array.has_value()) wire.set_array_id(options.array->bytes());
  return wire;
}

absl::StatusOr<Job> FromWire(const v1::Job& wire) {
  Job job;
  COHORT_ASSIGN_OR_RETURN(job.id, IdFromWire<JobId>(wire.job_id()));
  job.name = wire.name();
  job.state = JobStateFromWire(wire.state());
  job.reason = wire.reason();
  job.never_fits = wire.never_fits();
  job.attempt = wire.attempt();
  job.failures = wire.failures();
  job.infra_restarts = wire.infra_restarts();
  job.epoch = wire.epoch();
  job.num_workers = wire.num_workers();
  ExitFromWire(wire, job);
  job.submitted_at = TimeFromWire(wire.has_submitted_at(), wire.submitted_at());
  job.started_at = TimeFromWire(wire.has_started_at(), wire.started_at());
  job.ended_at = TimeFromWire(wire.has_ended_at(), wire.ended_at());
  if (wire.has_ran()) job.ran = rpc::FromWire(wire.ran());
  job.metrics_json = wire.metrics_json();
  job.metrics_count = wire.metrics_count();
  if (wire.has_checkpoint() && !wire.checkpoint().path().empty()) {
    job.checkpoint = Checkpoint{.path = wire.checkpoint().path(),
                                .step = wire.checkpoint().step(),
                                .epoch = wire.checkpoint().epoch()};
  }
  for (const v1::Rank& wire_rank : wire.ranks()) {
    COHORT_ASSIGN_OR_RETURN(Rank rank, FromWire(wire_rank));
    job.ranks.push_back(std::move(rank));
  }
  SpecFromWire(wire.spec(), job);
  WishesFromWire(wire.spec().scaling(), job);
  COHORT_RETURN_IF_ERROR(OrderFromWire(wire.spec(), job));
  FailuresFromWire(wire, job);
  job.labels.insert(wire.labels().begin(), wire.labels().end());
  job.name_space = wire.namespace_();
  job.priority = wire.priority();
  job.held = wire.held();
  if (wire.has_array()) job.array = FromWire(wire.array());
  if (wire.has_preflight()) job.preflight = FromWire(wire.preflight());
  return job;
}

namespace {

template <typename Value, typename Wire>
void SetIf(bool has, Wire value, std::optional<Value>& out) {
  if (has) out = value;
}

std::string DeviceStateName(v1::DeviceState state) {
  switch (state) {
    case v1::DEVICE_STATE_UNSPECIFIED:
    case v1::DEVICE_STATE_HEALTHY:
      return "HEALTHY";
    case v1::DEVICE_STATE_SUSPECT:
      return "SUSPECT";
    case v1::DEVICE_STATE_FENCED:
      return "FENCED";
    default:
      return "UNKNOWN";  // of a newer head
  }
}

absl::StatusOr<Device> DeviceFromWire(const v1::Device& wire,
                                      const v1::ShownDevice& shown) {
  Device device{
      .id = wire.id(),
      .kind = wire.kind(),
      .model = wire.model(),
      .memory_bytes = wire.memory_bytes(),
      .simulated = wire.simulated(),
      .pci_bus_id = wire.pci_bus_id(),
      .numa_node = {},
      .nvlink_peers = {wire.nvlink_peers().begin(), wire.nvlink_peers().end()},
      .parent = wire.parent()};
  SetIf(wire.has_numa_node(), wire.numa_node(), device.numa_node);
  const v1::DeviceStatus& status = shown.status();
  device.state = DeviceStateName(status.state());
  device.reason = status.reason();
  device.since = TimeFromWire(shown.has_since(), shown.since());
  if (status.has_sample()) device.sample = rpc::FromWire(status.sample());
  for (const v1::DeviceHolder& holder : shown.holders()) {
    DeviceHolder& added = device.holders.emplace_back();
    COHORT_ASSIGN_OR_RETURN(added.attempt,
                            IdFromWire<AttemptId>(holder.attempt_id()));
    if (!holder.job_id().empty()) {
      COHORT_ASSIGN_OR_RETURN(added.job, IdFromWire<JobId>(holder.job_id()));
    }
    added.job_name = holder.job_name();
    added.share = Amount::FromTenThousandths(holder.ten_thousandths());
    added.ranks.assign(holder.ranks().begin(), holder.ranks().end());
  }
  return device;
}

}  // namespace

absl::StatusOr<Node> FromWire(const v1::Node& wire) {
  Node node;
  COHORT_ASSIGN_OR_RETURN(node.id, IdFromWire<NodeId>(wire.node_id()));
  node.name = wire.name();
  node.state = wire.state();
  node.incarnation = wire.incarnation();
  node.pid = wire.pid();
  node.resources = ResourcesFromWire(wire.resources());
  node.available = ResourcesFromWire(wire.available());
  node.labels.insert(wire.labels().begin(), wire.labels().end());
  for (int i = 0; i < wire.devices_size(); ++i) {
    // An older head does not tell how they are.
    const v1::ShownDevice shown = i < wire.device_states_size()
                                      ? wire.device_states(i)
                                      : v1::ShownDevice();
    COHORT_ASSIGN_OR_RETURN(node.devices.emplace_back(),
                            DeviceFromWire(wire.devices(i), shown));
  }
  for (const v1::Taint& taint : wire.taints()) {
    node.taints.push_back({.key = taint.key(), .value = taint.value()});
  }
  if (wire.has_drain()) node.drain = FromWire(wire.drain());
  node.unfit = wire.unfit();
  node.since = TimeFromWire(wire.has_since(), wire.since());
  node.host = wire.host();
  node.build = wire.build();
  return node;
}

absl::StatusOr<NodeDetails> FromWire(const v1::GetNodeResponse& wire) {
  NodeDetails details;
  COHORT_ASSIGN_OR_RETURN(details.node, FromWire(wire.node()));
  for (const v1::HeldAttempt& held : wire.held()) {
    COHORT_ASSIGN_OR_RETURN(details.held.emplace_back(), FromWire(held));
  }
  return details;
}

absl::StatusOr<Event> FromWire(const v1::Event& wire) {
  Event event;
  event.number = wire.number();
  if (wire.has_at()) event.at = rpc::FromWire(wire.at());
  event.kind = wire.kind();
  if (!wire.job_id().empty()) {
    COHORT_ASSIGN_OR_RETURN(event.job, IdFromWire<JobId>(wire.job_id()));
  }
  if (!wire.attempt_id().empty()) {
    COHORT_ASSIGN_OR_RETURN(event.attempt,
                            IdFromWire<AttemptId>(wire.attempt_id()));
  }
  if (!wire.node_id().empty()) {
    COHORT_ASSIGN_OR_RETURN(event.node, IdFromWire<NodeId>(wire.node_id()));
  }
  event.node_name = wire.node_name();
  event.principal = wire.principal();
  event.name_space = wire.namespace_();
  event.request_id = wire.request_id();
  event.cause = wire.cause();
  event.text = wire.text();
  return event;
}

absl::StatusOr<ClusterResources> FromWire(
    const v1::GetResourcesResponse& wire) {
  return ClusterResources{.total = ResourcesFromWire(wire.total()),
                          .available = ResourcesFromWire(wire.available())};
}

absl::StatusOr<ClusterStatus> FromWire(const v1::GetStatusResponse& wire) {
  ClusterStatus status;
  COHORT_ASSIGN_OR_RETURN(status.cluster_id,
                          IdFromWire<ClusterId>(wire.stamp().cluster_id()));
  status.address = wire.address();
  status.http_address = wire.http_address();
  status.head_pid = wire.head_pid();
  status.term = wire.stamp().term();
  status.nodes_by_state.insert(wire.nodes_by_state().begin(),
                               wire.nodes_by_state().end());
  status.jobs_by_state.insert(wire.jobs_by_state().begin(),
                              wire.jobs_by_state().end());
  status.read_only = wire.read_only();
  status.read_only_why = wire.read_only_why();
  status.settling = wire.settling();
  status.later_store_nodes.assign(wire.later_store_node_names().begin(),
                                  wire.later_store_node_names().end());
  status.later_store_term = wire.later_store_term();
  status.later_store_why = wire.later_store_why();
  for (const v1::OrphanAttempt& each : wire.orphans()) {
    OrphanAttempt& out = status.orphans.emplace_back();
    COHORT_ASSIGN_OR_RETURN(out.attempt,
                            IdFromWire<AttemptId>(each.attempt_id()));
    COHORT_ASSIGN_OR_RETURN(out.job, IdFromWire<JobId>(each.job_id()));
    out.nodes.assign(each.node_names().begin(), each.node_names().end());
    out.state = each.state();
    if (each.has_since()) out.since = rpc::FromWire(each.since());
  }
  status.orphan_count = wire.orphan_count();
  return status;
}

}  // namespace cohort::client
