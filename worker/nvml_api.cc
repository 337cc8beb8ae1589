#include "worker/nvml_api.h"

#include <dlfcn.h>

#include <initializer_list>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "common/status_macros.h"

namespace cohort::worker::nvml {
namespace {

// The first of `symbols` that is there: newer names first.
template <typename F>
bool Find(void* library, std::initializer_list<const char*> symbols,
          F& function) {
  for (const char* const symbol : symbols) {
    function = reinterpret_cast<F>(dlsym(library, symbol));
    if (function != nullptr) return true;
  }
  return false;
}

template <typename F>
absl::Status Need(void* library, std::initializer_list<const char*> symbols,
                  F& function) {
  if (Find(library, symbols, function)) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("NVML lacks ", *symbols.begin(),
                   ": the driver is older than 418; update it, or do without "
                   "GPUs with --num-gpus 0"));
}

}  // namespace

absl::StatusOr<Api> LoadApi(const std::string& path) {
  std::unique_ptr<void, int (*)(void*)> library(
      dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL), dlclose);
  if (library == nullptr) {
    const char* const why = dlerror();
    return absl::NotFoundError(why == nullptr ? path : why);
  }
  void* const from = library.get();
  Api api;
  COHORT_RETURN_IF_ERROR(Need(from, {"nvmlInit_v2", "nvmlInit"}, api.init));
  COHORT_RETURN_IF_ERROR(Need(from, {"nvmlShutdown"}, api.shutdown));
  COHORT_RETURN_IF_ERROR(
      Need(from, {"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"}, api.count));
  COHORT_RETURN_IF_ERROR(Need(
      from, {"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"},
      api.handle));
  COHORT_RETURN_IF_ERROR(Need(from, {"nvmlDeviceGetName"}, api.name));
  COHORT_RETURN_IF_ERROR(Need(from, {"nvmlDeviceGetMemoryInfo"}, api.memory));

  Find(from, {"nvmlErrorString"}, api.error_string);
  Find(from, {"nvmlDeviceGetMemoryInfo_v2"}, api.memory_v2);
  Find(from, {"nvmlDeviceGetUUID"}, api.uuid);
  Find(from, {"nvmlDeviceGetPciInfo_v3"}, api.pci_info);
  Find(from, {"nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo"},
       api.pci_info_old);
  Find(from, {"nvmlDeviceGetMemoryAffinity"}, api.memory_affinity);
  Find(from, {"nvmlDeviceGetNvLinkState"}, api.link_state);
  Find(from, {"nvmlDeviceGetNvLinkRemotePciInfo_v2"}, api.link_peer);
  Find(from, {"nvmlDeviceGetP2PStatus"}, api.p2p_status);
  Find(from, {"nvmlDeviceGetMigMode"}, api.mig_mode);
  Find(from, {"nvmlDeviceGetMaxMigDeviceCount"}, api.mig_count_max);
  Find(from, {"nvmlDeviceGetMigDeviceHandleByIndex"}, api.mig_handle);
  Find(from, {"nvmlDeviceGetUtilizationRates"}, api.utilization);
  Find(from, {"nvmlDeviceGetPowerUsage"}, api.power);
  Find(from, {"nvmlDeviceGetTemperature"}, api.temperature);
  Find(from, {"nvmlDeviceGetTotalEccErrors"}, api.ecc_errors);
  Find(from, {"nvmlDeviceGetRemappedRows"}, api.remapped_rows);
  Find(from,
       {"nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetComputeRunningProcesses_v2"},
       api.processes);
  Find(from, {"nvmlDeviceGetComputeRunningProcesses"}, api.processes_v1);
  Find(from, {"nvmlEventSetCreate"}, api.event_set_create);
  Find(from, {"nvmlEventSetFree"}, api.event_set_free);
  Find(from, {"nvmlDeviceRegisterEvents"}, api.register_events);
  Find(from, {"nvmlEventSetWait_v2", "nvmlEventSetWait"}, api.event_set_wait);
  library.release();  // stays open
  return api;
}

}  // namespace cohort::worker::nvml
