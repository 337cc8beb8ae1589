#include "head/services/node_wire.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/string_view.h"

#include "common/printable_text.h"
#include "common/status_macros.h"
#include "head/store/unknown_fields.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

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

}  // namespace

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
    for (const auto& [slot, incarnation] : each.words) {
      v1::ProcessId* const words = with_room(id.size()).add_words();
      words->set_attempt_id(id);
      words->set_slot(slot);
      words->set_incarnation(incarnation);
    }
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

std::vector<v1::DeviceStatus> FromWire(
    const google::protobuf::RepeatedPtrField<v1::DeviceStatus>& wire) {
  std::vector<v1::DeviceStatus> devices;
  if (wire.size() > kDeviceStatesMax) return devices;
  devices.reserve(static_cast<size_t>(wire.size()));
  std::set<absl::string_view> named;
  for (const v1::DeviceStatus& status : wire) {
    if (status.id().size() > kDeviceIdBytesMax) continue;  // not one of its own
    if (!named.insert(status.id()).second) continue;  // it said how that is
    v1::DeviceStatus& device = devices.emplace_back(status);
    DropUnknownFields(device);  // clients are sent it
    device.set_state(FromWire(status.state()));
    device.set_reason(Cut(status.reason(), kDeviceReasonBytesMax));
  }
  return devices;
}

absl::StatusOr<Registration> FromWire(const v1::Register& wire) {
  Registration registration;
  COHORT_ASSIGN_OR_RETURN(registration.id, NodeId::FromBytes(wire.node_id()));
  COHORT_ASSIGN_OR_RETURN(const ResourceSet resources,
                          rpc::FromWire(wire.resources()));
  v1::Node& node = registration.node;
  node.set_name(wire.name());
  node.set_host(wire.host());
  node.set_pid(wire.pid());
  *node.mutable_resources() = rpc::ToWire(resources);
  *node.mutable_devices() = wire.devices();
  *node.mutable_labels() = wire.labels();
  *node.mutable_taints() = wire.taints();
  node.set_build(wire.protocol().build());
  node.set_not_ready(Cut(wire.not_ready(), kNotReadyBytesMax));
  node.set_unenforced(Cut(wire.unenforced(), kNotReadyBytesMax));
  // It becomes a row.
  DropUnknownFields(node);
  registration.observed = wire.observed();
  registration.observed.set_full(true);
  registration.leaving = wire.leaving();
  registration.devices = FromWire(wire.device_states());
  return registration;
}

}  // namespace cohort::head
