#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/resources.h"
#include "worker/device_source.h"

namespace cohort::worker {

// What this node offers to the cluster.
struct NodeInventory {
  ResourceSet resources;  // CPU, GPU, memory and custom ones
  std::vector<Device> devices;
  // Ids of all that the machine has, other workers' too.  Nothing where it was
  // not asked, or there is no driver: that says nothing of what runs on them.
  std::optional<std::set<std::string>> on_machine;
};

// What a person wants offered instead of what the machine has.
struct InventoryOptions {
  std::optional<Amount> cpus;
  std::optional<int64_t> memory_bytes;
  // So many devices of the source; more than it has is an error.  Those that
  // are absent count, but are not offered.
  std::optional<int> gpus;
  ResourceSet custom;
  // Several workers on one machine divide it: this one is share `share_index`
  // (from 0) of `share_count`.  No two offer the same device.
  int share_index = 0;
  int share_count = 1;
};

// What the machine can give to processes of ours.
struct MachineSize {
  Amount cpus;  // by affinity and the cgroup's quota
  int64_t memory_bytes = 0;
};
absl::StatusOr<MachineSize> MeasureMachine();

// Puts together what is offered.  InvalidArgument, naming flag and numbers,
// when more GPUs are wanted than `source` has, or a custom resource has a known
// name.
absl::StatusOr<NodeInventory> TakeInventory(const InventoryOptions& options,
                                            const MachineSize& machine,
                                            DeviceSource& source);

}  // namespace cohort::worker
