#pragma once

#include <string>
#include <vector>

#include "worker/device_source.h"

namespace cohort::worker {

// `count` devices that do not exist, for tests and for trying placement out on
// a machine without GPUs.  They call themselves simulated wherever they appear.
class SimulatedDevices final : public DeviceSource {
 public:
  // `node` makes the ids unique in the cluster.
  SimulatedDevices(std::string node, int count)
      : node_(std::move(node)), count_(count) {}

  absl::StatusOr<std::vector<Device>> List() override;

 private:
  const std::string node_;
  const int count_;
};

}  // namespace cohort::worker
