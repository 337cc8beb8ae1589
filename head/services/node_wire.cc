#include "head/services/node_wire.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/string_view.h"

#include "common/printable_text.h"
#include "common/status_macros.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

// Values of a newer worker change nothing.
v1::RankState FromWire(v1::RankState state) {
  return v1::RankState_IsValid(state) && state != v1::RANK_STATE_UNSPECIFIED
             ? state
             : v1::RANK_STATE_PENDING;
}

ObservedRank FromWire(const v1::ObservedRank& wire) {
  ObservedRank rank;
  rank.rank = wire.rank();
  rank.state = FromWire(wire.state());
  rank.pid = wire.pid();
  if (wire.has_exit()) rank.exit = wire.exit();
  rank.exit_order = wire.exit_order();
  rank.ended_by_order = wire.ended_by_order();
  if (v1::GpuAbortLevel_IsValid(wire.gpu_end().level())) {
    rank.gpu_abort_level = wire.gpu_end().level();
    rank.gpu_why = wire.gpu_end().why();
  }
  return rank;
}

// Of a newer worker's verdicts nothing is known but that it went on.
v1::PreflightReport FromWire(v1::PreflightReport wire) {
  const bool known = v1::PreflightVerdict_IsValid(wire.verdict()) &&
                     wire.verdict() != v1::PREFLIGHT_VERDICT_UNSPECIFIED;
  if (!known) wire.set_verdict(v1::PREFLIGHT_VERDICT_PASSED);
  return wire;
}

// A state of a newer worker is at least suspect.
DeviceState FromWire(v1::DeviceState state) {
  switch (state) {
    case v1::DEVICE_STATE_UNSPECIFIED:
    case v1::DEVICE_STATE_HEALTHY:
      return v1::DEVICE_STATE_HEALTHY;
    case v1::DEVICE_STATE_FENCED:
      return v1::DEVICE_STATE_FENCED;
    default:
      return v1::DEVICE_STATE_SUSPECT;
  }
}

absl::StatusOr<AttemptPart> FromWire(const v1::HeldResources& wire) {
  AttemptPart held;
  COHORT_ASSIGN_OR_RETURN(held.resources, rpc::FromWire(wire.resources()));
  for (const v1::ResourceSet::Amount& device : wire.devices()) {
    held.devices[device.name()] =
        std::clamp(Amount::FromTenThousandths(device.ten_thousandths()),
                   Amount(), Amount::FromUnits(1));
  }
  return held;
}

absl::StatusOr<ObservedAttempt> FromWire(const v1::ObservedAttempt& wire) {
  ObservedAttempt observed;
  COHORT_ASSIGN_OR_RETURN(observed.attempt,
                          AttemptId::FromBytes(wire.attempt_id()));
  COHORT_ASSIGN_OR_RETURN(observed.job, JobId::FromBytes(wire.job_id()));
  observed.epoch = wire.epoch();
  if (v1::Phase_IsValid(wire.phase())) observed.phase = wire.phase();
  if (v1::EndCause_IsValid(wire.end_cause())) {
    observed.end = wire.end_cause();
  }
  observed.detail = wire.detail();
  observed.master_port = wire.master_port();
  for (const v1::ObservedRank& rank : wire.ranks()) {
    observed.ranks.push_back(FromWire(rank));
  }
  for (const v1::MetricsReport& report : wire.metrics()) {
    observed.metrics.push_back({.rank = report.rank(),
                                .count = report.count(),
                                .json = report.json()});
  }
  observed.checkpoints.assign(wire.checkpoints().begin(),
                              wire.checkpoints().end());
  for (const v1::PendingExchange& exchange : wire.exchanges()) {
    observed.exchanges.push_back({.tag = exchange.tag(),
                                  .rank = exchange.rank(),
                                  .blob = exchange.blob()});
  }
  observed.removed_checkpoints.assign(wire.removed_checkpoints().begin(),
                                      wire.removed_checkpoints().end());
  observed.stderr_tail = wire.stderr_tail();
  observed.ran = rpc::FromWire(wire.ran());
  if (wire.has_preflight()) observed.preflight = FromWire(wire.preflight());
  observed.generation = wire.generation();
  if (wire.has_held()) {
    COHORT_ASSIGN_OR_RETURN(observed.held, FromWire(wire.held()));
  }
  return observed;
}

}  // namespace

v1::DesiredAttempt ToWire(const DesiredAttempt& desired) {
  v1::DesiredAttempt wire;
  wire.set_attempt_id(std::string(desired.attempt.bytes()));
  wire.set_job_id(desired.job.bytes());
  wire.set_goal(desired.goal);
  wire.set_reason(desired.reason);
  if (desired.goal == v1::GOAL_FORGET) return wire;
  wire.set_number(desired.number);
  wire.set_epoch(desired.epoch);
  wire.set_job_name(desired.job_name);
  for (const std::string& argument : desired.command) {
    wire.add_command(argument);
  }
  for (const auto& [name, value] : desired.environment) {
    (*wire.mutable_environment())[name] = value;
  }
  wire.set_package_hash(desired.package_hash);
  wire.set_preflight(desired.preflight);
  for (const DesiredRank& rank : desired.ranks) {
    v1::DesiredRank* out = wire.add_ranks();
    out->set_rank(rank.rank);
    out->set_local_rank(rank.local_rank);
    for (const std::string& gpu : rank.gpu_ids) out->add_gpu_ids(gpu);
  }
  wire.set_world_size(desired.world_size);
  wire.set_node_rank(desired.node_rank);
  wire.set_node_count(desired.node_count);
  wire.set_holds_rank_zero(desired.holds_rank_zero);
  *wire.mutable_resources_per_rank() = rpc::ToWire(desired.resources_per_rank);
  wire.set_storage_path(desired.storage_path);
  if (desired.restore.has_value()) *wire.mutable_restore() = *desired.restore;
  wire.set_max_failures(desired.max_failures);
  wire.set_master_address(desired.master_address);
  wire.set_master_port(desired.master_port);
  if (desired.time_limit != absl::InfiniteDuration()) {
    *wire.mutable_time_limit() = rpc::ToWire(desired.time_limit);
  }
  *wire.mutable_grace() = rpc::ToWire(desired.grace);
  for (const std::string& path : desired.retired_checkpoints) {
    wire.add_retired_checkpoints(path);
  }
  return wire;
}

v1::Exchange ToWire(const Exchange& exchange) {
  v1::Exchange wire;
  wire.set_attempt_id(std::string(exchange.attempt.bytes()));
  wire.set_tag(exchange.tag);
  for (const std::string& blob : exchange.blobs) wire.add_blobs(blob);
  return wire;
}

std::vector<v1::Acknowledge> ToWire(
    const std::vector<Acknowledged>& acknowledged, size_t bytes_max) {
  std::vector<v1::Acknowledge> wire;
  size_t bytes = 0;
  const auto with_room = [&](size_t more) -> v1::Acknowledge& {
    if (wire.empty() || bytes + more > bytes_max) {
      wire.emplace_back();
      bytes = 0;
    }
    bytes += more;
    return wire.back();
  };
  for (const Acknowledged& each : acknowledged) {
    const std::string id(each.attempt.bytes());
    if (each.words) with_room(id.size()).add_words(id);
    for (const std::string& path : each.paths) {
      auto& checkpoints =
          *with_room(id.size() + path.size()).mutable_checkpoints();
      if (checkpoints.empty() || checkpoints.rbegin()->attempt_id() != id) {
        checkpoints.Add()->set_attempt_id(id);
      }
      checkpoints.rbegin()->add_paths(path);
    }
  }
  return wire;
}

absl::StatusOr<Observed> FromWire(const v1::Observed& wire) {
  Observed observed;
  observed.full = wire.full();
  for (const v1::ObservedAttempt& attempt : wire.attempts()) {
    COHORT_ASSIGN_OR_RETURN(observed.attempts.emplace_back(),
                            FromWire(attempt));
  }
  return observed;
}

std::vector<ObservedDevice> FromWire(
    const google::protobuf::RepeatedPtrField<v1::DeviceStatus>& wire) {
  std::vector<ObservedDevice> devices;
  if (wire.size() > kDeviceStatesMax) return devices;
  devices.reserve(static_cast<size_t>(wire.size()));
  std::set<absl::string_view> named;
  for (const v1::DeviceStatus& status : wire) {
    if (status.id().size() > kDeviceIdBytesMax) continue;  // none that it has
    if (!named.insert(status.id()).second) continue;  // it said how that is
    ObservedDevice& device = devices.emplace_back();
    device.id = status.id();
    device.state = FromWire(status.state());
    device.reason = Cut(status.reason(), kDeviceReasonBytesMax);
    device.sample = rpc::FromWire(status.sample());
  }
  return devices;
}

absl::StatusOr<Registration> FromWire(const v1::Register& wire) {
  Registration registration;
  COHORT_ASSIGN_OR_RETURN(registration.node, NodeId::FromBytes(wire.node_id()));
  registration.name = wire.name();
  registration.host = wire.host();
  registration.pid = wire.pid();
  COHORT_ASSIGN_OR_RETURN(registration.resources,
                          rpc::FromWire(wire.resources()));
  for (const v1::Device& device : wire.devices()) {
    Device& added = registration.devices.emplace_back();
    added = {.id = device.id(),
             .kind = device.kind(),
             .model = device.model(),
             .memory_bytes = device.memory_bytes(),
             .simulated = device.simulated(),
             .pci_bus_id = device.pci_bus_id(),
             .numa_node = {},
             .nvlink_peers = {device.nvlink_peers().begin(),
                              device.nvlink_peers().end()},
             .parent = device.parent()};
    if (device.has_numa_node()) added.numa_node = device.numa_node();
  }
  registration.labels.insert(wire.labels().begin(), wire.labels().end());
  for (const v1::Taint& taint : wire.taints()) {
    registration.taints.push_back({.key = taint.key(), .value = taint.value()});
  }
  registration.build = wire.protocol().build();
  COHORT_ASSIGN_OR_RETURN(registration.observed, FromWire(wire.observed()));
  registration.observed.full = true;
  registration.leaving = wire.leaving();
  registration.unfit = Cut(wire.unfit(), kUnfitBytesMax);
  registration.device_states = FromWire(wire.device_states());
  return registration;
}

}  // namespace cohort::head
