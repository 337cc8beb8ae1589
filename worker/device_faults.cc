#include "worker/device_faults.h"

#include <algorithm>

namespace cohort::worker {

bool HasDevice(const v1::DesiredProcess& process, const std::string& device) {
  return std::find(process.gpu_ids().begin(), process.gpu_ids().end(),
                   device) != process.gpu_ids().end();
}

void DeviceFaults::Note(const std::string& device, const std::string& reason) {
  if (reason.empty()) {
    faults_.erase(device);
  } else {
    faults_[device] = reason;
  }
}

std::string DeviceFaults::Of(const v1::DesiredProcess& process) const {
  for (const auto& [device, reason] : faults_) {
    if (HasDevice(process, device)) return reason;
  }
  return "";
}

}  // namespace cohort::worker
