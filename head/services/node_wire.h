#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"

#include "cohort/v1/node.pb.h"
#include "head/state/node_links.h"
#include "head/state/observed.h"

// node.proto to the head's domain and back.  Stateless.
namespace cohort::head {

// Of why a node is not ready.
inline constexpr size_t kNotReadyBytesMax = 512;
// Of why a device is not healthy, and of devices that are heard of at once.
inline constexpr size_t kDeviceReasonBytesMax = 512;
inline constexpr size_t kDeviceIdBytesMax = 256;
inline constexpr int kDeviceStatesMax = 1'024;

// In messages of about `bytes_max`.
std::vector<v1::Acknowledge> ToWire(
    const std::vector<Acknowledged>& acknowledged, size_t bytes_max);

// InvalidArgument when an id or an amount in it cannot be.
absl::StatusOr<Registration> FromWire(const v1::Register& wire);
// What cannot be is left out: it changes nothing.
std::vector<v1::DeviceStatus> FromWire(
    const google::protobuf::RepeatedPtrField<v1::DeviceStatus>& wire);

}  // namespace cohort::head
