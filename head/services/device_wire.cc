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

void SetShown(const ClusterState& state, const NodeId& node,
              const Device& device, v1::ShownDevice& wire) {
  v1::DeviceStatus& status = *wire.mutable_status();
  status.set_id(device.id());
  status.set_state(device.state());
  status.set_reason(device.reason());
  if (const auto* sample = state.nodes().SampleOf(node, device.id())) {
    *status.mutable_sample() = *sample;
  }
  if (device.has_since()) *wire.mutable_since() = device.since();
  for (const auto& [attempt, amount] :
       state.nodes().HoldersOf(node, device.id())) {
    SetHolder(state, node, device.id(), attempt, amount, *wire.add_holders());
  }
}

}  // namespace

void ShowDevices(const ClusterState& state, const NodeId& node,
                 v1::Node& wire) {
  for (Device& device : *wire.mutable_devices()) {
    SetShown(state, node, device, *wire.add_device_states());
    device.clear_state();
    device.clear_reason();
    device.clear_since();
  }
}

}  // namespace cohort::head
