#include "trainer/comm/testing/gpu_machine.h"

#include <stdlib.h>

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "common/status_macros.h"
#include "trainer/comm/nccl_library.h"
#include "trainer/comm/testing/process_gang.h"
#include "trainer/cuda/device.h"
#include "trainer/cuda/driver.h"

namespace cohort::trainer {
namespace {

// In a process of its own: tells "driver VERSION", "gpu UUID" for each, and
// "nccl VERSION" or "no_nccl WHY"; an error is why there is no GPU.
absl::Status TellOfGpus(ProcessGang::Place& place) {
  COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<const cuda::DriverTable> driver,
                          cuda::LoadDriver());
  int version = 0;
  COHORT_RETURN_IF_ERROR(cuda::DriverStatus(
      *driver, driver->cuDriverGetVersion(&version), "cuDriverGetVersion"));
  place.tell(absl::StrCat("driver ", cuda::DriverVersionText(version)));
  int count = 0;
  COHORT_RETURN_IF_ERROR(cuda::DriverStatus(
      *driver, driver->cuDeviceGetCount(&count), "cuDeviceGetCount"));
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<cuda::Device> device,
                            cuda::Device::Open(driver, ordinal));
    place.tell(absl::StrCat("gpu ", device->uuid()));
  }
  const auto library = nccl::LoadLibrary();
  place.tell(library.ok()
                 ? absl::StrCat("nccl ", nccl::VersionText((*library)->version),
                                " (", (*library)->path, ")")
                 : absl::StrCat("no_nccl ", library.status().message()));
  return absl::OkStatus();
}

GpuMachine Look() {
  GpuMachine machine;
  auto looker = ProcessGang::Start(1, TellOfGpus);
  if (!looker.ok()) {
    machine.no_gpu = std::string(looker.status().message());
    return machine;
  }
  while (true) {
    const absl::StatusOr<std::string> line = (*looker)->Hear(0);
    if (!line.ok()) break;
    const std::vector<std::string> words =
        absl::StrSplit(*line, absl::MaxSplits(' ', 1));
    if (words[0] == "driver") machine.driver_version = words[1];
    if (words[0] == "gpu") machine.gpus.push_back(words[1]);
    if (words[0] == "nccl") machine.nccl_version = words[1];
    if (words[0] == "no_nccl") machine.no_nccl = words[1];
  }
  const absl::Status looked = (*looker)->End(0);
  if (!looked.ok()) {
    machine.no_gpu = absl::StrCat("no GPU: ", looked.message());
    machine.no_nccl = machine.no_gpu;
  }
  return machine;
}

}  // namespace

const GpuMachine& ThisGpuMachine() {
  static const GpuMachine* const machine = new GpuMachine(Look());
  return *machine;
}

GpuCommOptions NcclOnThisMachine(const GpuMachine& machine, int rank,
                                 int world) {
  GpuCommOptions options;
  const auto loaded = cuda::LoadDriver();
  options.driver = loaded;
  options.nccl = nccl::LoadLibrary();
  if (machine.HasGpuEach(world)) {
    options.device = rank;
    return options;
  }
  // NCCL reads it at its first call, which comes later.
  // NOLINTNEXTLINE(concurrency-mt-unsafe): the process has one thread yet.
  setenv("NCCL_HOSTID", absl::StrCat("cohort-rank-", rank).c_str(), 1);
  if (!loaded.ok()) return options;
  auto driver = std::make_shared<cuda::DriverTable>(**loaded);
  driver->cuDeviceGetUuid = [real = driver->cuDeviceGetUuid, rank](
                                cuda::Uuid* uuid, cuda::DeviceHandle handle) {
    const cuda::Result result = real(uuid, handle);
    uuid->bytes[0] = static_cast<char>(uuid->bytes[0] + rank);
    return result;
  };
  options.driver = std::shared_ptr<const cuda::DriverTable>(std::move(driver));
  return options;
}

GpuCommOptions IpcOnThisMachine() {
  GpuCommOptions options;
  options.driver = cuda::LoadDriver();
  return options;
}

}  // namespace cohort::trainer
