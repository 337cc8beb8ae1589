#include "worker/simulated_devices.h"

#include "absl/strings/str_cat.h"

namespace cohort::worker {

std::string SimulatedDevices::IdOf(int index) const {
  return absl::StrCat("SIM-", node_, "-", index);
}

absl::StatusOr<std::vector<Device>> SimulatedDevices::List() {
  std::vector<Device> devices;
  for (int i = 0; i < count_; ++i) {
    Device& device = devices.emplace_back();
    device.set_id(IdOf(i));
    device.set_kind("gpu");
    device.set_model("simulated GPU");
    device.set_memory_bytes(int64_t{16} << 30);
    device.set_simulated(true);
  }
  return devices;
}

std::vector<DeviceAnswer> SimulatedDevices::Sample() {
  std::vector<DeviceAnswer> answers(static_cast<size_t>(count_));
  for (int i = 0; i < count_; ++i) {
    answers[static_cast<size_t>(i)].id = IdOf(i);
  }
  return answers;
}

std::optional<std::vector<DeviceProcess>> SimulatedDevices::Processes(
    const std::string&) {
  return std::vector<DeviceProcess>();
}

std::optional<Xid> SimulatedDevices::WaitXid(absl::Duration, bool* supported) {
  *supported = false;
  return std::nullopt;
}

}  // namespace cohort::worker
