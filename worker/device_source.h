#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cohort::worker {

// A device of this machine that ranks can be given.  A value.
struct Device {
  std::string id;    // what CUDA_VISIBLE_DEVICES takes; unique in the cluster
  std::string kind;  // "gpu"
  std::string model;
  int64_t memory_bytes = 0;
  bool simulated = false;  // said in every output

  friend bool operator==(const Device&, const Device&) = default;
};

// Where a worker learns which devices the machine has: NVML, or a source that a
// flag injected.  Everything after it (inventory, ids, environment, release) is
// the same for both.  Thread-compatible.
class DeviceSource {
 public:
  virtual ~DeviceSource() = default;

  // The devices, in a stable order.  Empty where there are none; Unavailable,
  // with what the driver said, when there are some that cannot be asked.
  virtual absl::StatusOr<std::vector<Device>> List() = 0;
};

}  // namespace cohort::worker
