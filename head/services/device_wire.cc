#include "head/services/device_wire.h"

#include <string>

namespace cohort::head {
namespace {

void SetHolder(const ClusterState& state, const NodeId& node,
               const std::string& device, const AttemptId& id, Amount amount,
               v1::DeviceHolder& wire) {
  wire.set_attempt_id(std::string(id.bytes()));
  wire.set_ten_thousandths(amount.ten_thousandths());
  const AttemptRecord* const attempt = state.attempts().Find(id);
  if (attempt == nullptr) return;
  wire.set_job_id(attempt->job.bytes());
  if (const JobRecord* const job = state.jobs().Find(attempt->job)) {
    wire.set_job_name(job->spec->name());
  }
  for (const Process& process : attempt->processes) {
    if (process.node == node && process.devices.contains(device)) {
      wire.add_ranks(process.slot);
    }
  }
}

}  // namespace

void ShowDevices(const ClusterState& state, const NodeId& node,
                 v1::Node& wire) {
  const NodeTable& nodes = state.nodes();
  for (Device& device : *wire.mutable_devices()) {
    if (const auto* sample = nodes.SampleOf(node, device.id())) {
      *device.mutable_sample() = *sample;
    }
    for (const auto& [attempt, amount] : nodes.HoldersOf(node, device.id())) {
      SetHolder(state, node, device.id(), attempt, amount,
                *device.add_holders());
    }
  }
}

}  // namespace cohort::head
