#include "head/services/device_wire.h"

#include <string>

#include "absl/time/time.h"

#include "rpc/wire_values.h"

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

void SetShown(const ClusterState& state, const NodeRecord& node,
              const Device& device, v1::ShownDevice& wire) {
  v1::DeviceStatus& status = *wire.mutable_status();
  status.set_id(device.id);
  status.set_state(device.state);
  status.set_reason(device.reason);
  const DeviceSample* const sample = state.nodes().SampleOf(node.id, device.id);
  if (sample != nullptr) *status.mutable_sample() = rpc::ToWire(*sample);
  if (device.since != absl::InfinitePast()) {
    *wire.mutable_since() = rpc::ToWire(device.since);
  }
  for (const auto& [attempt, amount] :
       state.nodes().HoldersOf(node.id, device.id)) {
    SetHolder(state, node.id, device.id, attempt, amount, *wire.add_holders());
  }
}

}  // namespace

void AddDevices(const ClusterState& state, const NodeRecord& node,
                v1::Node& wire) {
  for (const Device& device : node.devices) {
    v1::Device* const out = wire.add_devices();
    out->set_id(device.id);
    out->set_kind(device.kind);
    out->set_model(device.model);
    out->set_memory_bytes(device.memory_bytes);
    out->set_simulated(device.simulated);
    out->set_pci_bus_id(device.pci_bus_id);
    if (device.numa_node.has_value()) out->set_numa_node(*device.numa_node);
    for (const std::string& peer : device.nvlink_peers) {
      out->add_nvlink_peers(peer);
    }
    out->set_parent(device.parent);
    SetShown(state, node, device, *wire.add_device_states());
  }
}

}  // namespace cohort::head
