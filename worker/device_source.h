#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "cohort/v1/domain.pb.h"

namespace cohort::worker {

// A device of this machine.  Its id is unique in the cluster where it is a
// uuid; where the driver has none it is the index, and the head takes only one
// node with each.  NVLink peers are ascending, each once.
using Device = v1::Device;
// It cannot even be asked which it is: it has no id, its reason says why.  Its
// place among the others is all that is known of it, and it is not offered.
inline bool IsAbsent(const Device& device) { return device.id().empty(); }

// What one device answered when it was asked how it is.
struct DeviceAnswer {
  std::string id;
  // The device does not answer and will not again: it fell off the bus.
  std::string lost;
  // What asking it failed with otherwise, beyond what it does not support.
  std::string error;
  v1::DeviceSample sample = {};  // without Xids
};

// A process with memory on a device.
struct DeviceProcess {
  int64_t pid = 0;
  std::optional<int64_t> bytes;  // nothing: the driver does not say

  friend bool operator==(const DeviceProcess&, const DeviceProcess&) = default;
};

// The driver's report of a fault.
struct Xid {
  std::vector<std::string> ids;  // of the devices; empty: it may be any
  uint64_t code = 0;

  friend bool operator==(const Xid&, const Xid&) = default;
};

// Where a worker learns which devices the machine has, and how they are: NVML,
// or a source that a flag injected.  Everything after it (inventory, ids,
// environment, health, release) is the same for both.
//
// Calls may take as long as a driver that hangs.  Thread-compatible, but
// WaitXid may run beside the others.
class DeviceSource {
 public:
  virtual ~DeviceSource() = default;

  // The devices, in a stable order that one that is absent does not change:
  // several workers divide them by their places.  Empty where there are none;
  // Unavailable, with what the driver said, when there are some that cannot be
  // asked. REQUIRES: before the others.
  virtual absl::StatusOr<std::vector<Device>> List() = 0;

  // One for each that List gave and that is not absent, in its order.
  virtual std::vector<DeviceAnswer> Sample() = 0;

  // The processes with memory on a device that List gave; none where the
  // driver does not tell them at all.  Nothing when asking failed: which ones
  // there are is not known.
  virtual std::optional<std::vector<DeviceProcess>> Processes(
      const std::string& id) = 0;

  // The next fault, or nothing within `timeout`; nothing may come sooner. False
  // in *supported where faults are not told: then it need not be called again.
  virtual std::optional<Xid> WaitXid(absl::Duration timeout,
                                     bool* supported) = 0;
};

}  // namespace cohort::worker
