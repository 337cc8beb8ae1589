#include "worker/node_inventory.h"

#include <sched.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <cerrno>
#include <sstream>

#include "absl/strings/str_cat.h"

#include "common/file.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "worker/delegated_cgroup.h"

namespace cohort::worker {
namespace {

// cpu.max is "<quota> <period>" in microseconds, or "max <period>".
std::optional<double> CpuQuota() {
  const auto text = ReadFile(absl::StrCat(OwnCgroup(), "/cpu.max"));
  if (!text.ok()) return std::nullopt;
  double quota = 0;
  double period = 0;
  std::istringstream in(*text);
  if (!(in >> quota >> period) || period <= 0) return std::nullopt;
  return quota / period;
}

std::optional<int64_t> MemoryLimit() {
  const auto text = ReadFile(absl::StrCat(OwnCgroup(), "/memory.max"));
  if (!text.ok()) return std::nullopt;
  int64_t limit = 0;
  std::istringstream in(*text);
  if (!(in >> limit)) return std::nullopt;  // "max"
  return limit;
}

}  // namespace

absl::StatusOr<MachineSize> MeasureMachine() {
  cpu_set_t set;
  struct sysinfo info;
  if (sched_getaffinity(0, sizeof(set), &set) != 0 || sysinfo(&info) != 0) {
    return ErrnoStatus(errno, "measure the machine");
  }
  MachineSize machine;
  double cpus = CPU_COUNT(&set);
  if (const auto quota = CpuQuota()) cpus = std::min(cpus, *quota);
  COHORT_ASSIGN_OR_RETURN(machine.cpus, Amount::FromDouble(cpus));
  machine.memory_bytes =
      static_cast<int64_t>(info.totalram) * static_cast<int64_t>(info.mem_unit);
  if (const auto limit = MemoryLimit()) {
    machine.memory_bytes = std::min(machine.memory_bytes, *limit);
  }
  return machine;
}

absl::StatusOr<NodeInventory> TakeInventory(const InventoryOptions& options,
                                            const MachineSize& machine,
                                            DeviceSource& source) {
  std::vector<Device> devices;
  // Who wants none does without a driver that is broken.
  if (options.gpus != 0) {
    COHORT_ASSIGN_OR_RETURN(devices, source.List());
  }
  const int there = static_cast<int>(devices.size());
  const int wanted = options.gpus.value_or(there / options.share_count);
  const int first = options.share_index * wanted;
  if (first + wanted > there) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--num-gpus ", wanted, ": this machine has ", there, " GPUs",
        options.share_count > 1
            ? absl::StrCat(" for ", options.share_count, " workers")
            : ""));
  }
  for (const auto& [name, amount] : options.custom) {
    if (name == kCpu || name == kGpu || name == kMemory) {
      return absl::InvalidArgumentError(
          absl::StrCat("--resources ", name, "=", amount.ToString(),
                       ": use --num-cpus, --num-gpus or --memory for it"));
    }
  }
  NodeInventory inventory;
  for (int place = first; place < first + wanted; ++place) {
    if (!IsAbsent(devices[place])) inventory.devices.push_back(devices[place]);
  }
  if (!devices.empty()) {
    inventory.on_machine.emplace();
    for (const Device& device : devices) {
      if (!IsAbsent(device)) inventory.on_machine->insert(device.id());
    }
  }
  inventory.resources = options.custom;
  inventory.resources.Set(
      kCpu, options.cpus.value_or(Amount::FromTenThousandths(
                machine.cpus.ten_thousandths() / options.share_count)));
  inventory.resources.Set(
      kGpu, Amount::FromUnits(static_cast<int64_t>(inventory.devices.size())));
  inventory.resources.Set(kMemory,
                          Amount::FromUnits(options.memory_bytes.value_or(
                              machine.memory_bytes / options.share_count)));
  COHORT_RETURN_IF_ERROR(inventory.resources.Validate());
  return inventory;
}

}  // namespace cohort::worker
