#pragma once

#include <optional>
#include <string>
#include <vector>

#include "worker/device_source.h"

namespace cohort::worker {

// `count` devices that do not exist, for tests and for trying placement out on
// a machine without GPUs.  They call themselves simulated wherever they appear,
// are always well, and no process has memory on them.
class SimulatedDevices final : public DeviceSource {
 public:
  // `node` makes the ids unique in the cluster.
  SimulatedDevices(std::string node, int count)
      : node_(std::move(node)), count_(count) {}

  absl::StatusOr<std::vector<Device>> List() override;
  std::vector<DeviceAnswer> Sample() override;
  std::optional<std::vector<DeviceProcess>> Processes(
      const std::string& id) override;
  std::optional<Xid> WaitXid(absl::Duration timeout, bool* supported) override;

 private:
  std::string IdOf(int index) const;

  const std::string node_;
  const int count_;
};

}  // namespace cohort::worker
