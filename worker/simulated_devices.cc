#include "worker/simulated_devices.h"

#include "absl/strings/str_cat.h"

namespace cohort::worker {

absl::StatusOr<std::vector<Device>> SimulatedDevices::List() {
  std::vector<Device> devices;
  for (int i = 0; i < count_; ++i) {
    devices.push_back({.id = absl::StrCat("SIM-", node_, "-", i),
                       .kind = "gpu",
                       .model = "simulated GPU",
                       .memory_bytes = int64_t{16} << 30,
                       .simulated = true});
  }
  return devices;
}

}  // namespace cohort::worker
