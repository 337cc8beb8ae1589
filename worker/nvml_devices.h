#pragma once

#include <string>
#include <vector>

#include "worker/device_source.h"

namespace cohort::worker {

// The machine's NVIDIA GPUs, asked of the driver's management library, which is
// opened at run time: neither building nor running needs CUDA.
//
// Ids are uuids ("GPU-..."), which CUDA_VISIBLE_DEVICES takes and which do not
// change when a device falls out of the numbering.
class NvmlDevices final : public DeviceSource {
 public:
  // `library`: "libnvidia-ml.so.1", or a test's own.
  explicit NvmlDevices(std::string library = "libnvidia-ml.so.1")
      : library_(std::move(library)) {}

  // Empty when there is no such library: a machine without a driver.
  absl::StatusOr<std::vector<Device>> List() override;

 private:
  const std::string library_;
};

}  // namespace cohort::worker
