#include "worker/nvml_devices.h"

#include <dlfcn.h>

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "common/log.h"
#include "common/status_macros.h"

namespace cohort::worker {
namespace {

// The part of NVML's C interface that we use, stable since driver 418.
using NvmlReturn = int;  // 0: success
using NvmlDevice = struct NvmlDeviceOpaque*;
struct NvmlMemory {
  unsigned long long total;  // NOLINT(google-runtime-int): NVML's own types
  unsigned long long free;   // NOLINT(google-runtime-int)
  unsigned long long used;   // NOLINT(google-runtime-int)
};
constexpr unsigned kTextBytes = 96;  // NVML_DEVICE_NAME_V2_BUFFER_SIZE

struct Nvml {
  NvmlReturn (*init)();
  NvmlReturn (*shutdown)();
  const char* (*error_string)(NvmlReturn);
  NvmlReturn (*count)(unsigned*);
  NvmlReturn (*handle)(unsigned, NvmlDevice*);
  NvmlReturn (*name)(NvmlDevice, char*, unsigned);
  NvmlReturn (*uuid)(NvmlDevice, char*, unsigned);
  NvmlReturn (*memory)(NvmlDevice, NvmlMemory*);
};

template <typename F>
absl::Status Load(void* library, const char* symbol, F& function) {
  function = reinterpret_cast<F>(dlsym(library, symbol));
  if (function == nullptr) {
    return absl::UnavailableError(absl::StrCat(
        "NVML lacks ", symbol, ": the driver is older than 418; update it"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Nvml> LoadAll(void* library) {
  Nvml nvml;
  COHORT_RETURN_IF_ERROR(Load(library, "nvmlInit_v2", nvml.init));
  COHORT_RETURN_IF_ERROR(Load(library, "nvmlShutdown", nvml.shutdown));
  COHORT_RETURN_IF_ERROR(Load(library, "nvmlErrorString", nvml.error_string));
  COHORT_RETURN_IF_ERROR(Load(library, "nvmlDeviceGetCount_v2", nvml.count));
  COHORT_RETURN_IF_ERROR(
      Load(library, "nvmlDeviceGetHandleByIndex_v2", nvml.handle));
  COHORT_RETURN_IF_ERROR(Load(library, "nvmlDeviceGetName", nvml.name));
  COHORT_RETURN_IF_ERROR(Load(library, "nvmlDeviceGetUUID", nvml.uuid));
  COHORT_RETURN_IF_ERROR(Load(library, "nvmlDeviceGetMemoryInfo", nvml.memory));
  return nvml;
}

absl::Status Check(const Nvml& nvml, NvmlReturn result, const char* what) {
  if (result == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("NVML: ", what, ": ", nvml.error_string(result)));
}

absl::StatusOr<Device> Describe(const Nvml& nvml, unsigned index) {
  NvmlDevice handle = nullptr;
  COHORT_RETURN_IF_ERROR(
      Check(nvml, nvml.handle(index, &handle), "device handle"));
  char name[kTextBytes] = {};
  char uuid[kTextBytes] = {};
  NvmlMemory memory = {};
  COHORT_RETURN_IF_ERROR(
      Check(nvml, nvml.name(handle, name, sizeof(name)), "device name"));
  COHORT_RETURN_IF_ERROR(
      Check(nvml, nvml.uuid(handle, uuid, sizeof(uuid)), "device uuid"));
  COHORT_RETURN_IF_ERROR(
      Check(nvml, nvml.memory(handle, &memory), "device memory"));
  return Device{.id = uuid,
                .kind = "gpu",
                .model = name,
                .memory_bytes = static_cast<int64_t>(memory.total),
                .simulated = false};
}

}  // namespace

absl::StatusOr<std::vector<Device>> NvmlDevices::List() {
  const std::unique_ptr<void, int (*)(void*)> library(
      dlopen(library_.c_str(), RTLD_NOW | RTLD_LOCAL), dlclose);
  if (library == nullptr) {
    COHORT_LOG(kDebug, "no_nvml", {"library", library_});
    return std::vector<Device>();
  }
  COHORT_ASSIGN_OR_RETURN(const Nvml nvml, LoadAll(library.get()));
  COHORT_RETURN_IF_ERROR(Check(nvml, nvml.init(), "start"));
  const std::unique_ptr<const Nvml, void (*)(const Nvml*)> running(
      &nvml, [](const Nvml* n) { n->shutdown(); });
  unsigned count = 0;
  COHORT_RETURN_IF_ERROR(Check(nvml, nvml.count(&count), "device count"));
  std::vector<Device> devices;
  for (unsigned index = 0; index < count; ++index) {
    COHORT_ASSIGN_OR_RETURN(devices.emplace_back(), Describe(nvml, index));
  }
  return devices;
}

}  // namespace cohort::worker
