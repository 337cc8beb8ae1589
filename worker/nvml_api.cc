#include "worker/nvml_api.h"

#include <initializer_list>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "common/dynamic_library.h"
#include "common/status_macros.h"

namespace cohort::worker::nvml {
namespace {

template <typename F>
absl::Status Need(const DynamicLibrary& library,
                  std::initializer_list<const char*> symbols, F& function) {
  if (library.Bind(symbols, function)) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("NVML lacks ", *symbols.begin(),
                   ": the driver is older than 418; update it, or do without "
                   "GPUs with --num-gpus 0"));
}

}  // namespace

absl::StatusOr<Api> LoadApi(const std::string& path) {
  COHORT_ASSIGN_OR_RETURN(const DynamicLibrary from,
                          DynamicLibrary::Open(path));
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

  from.Bind({"nvmlErrorString"}, api.error_string);
  from.Bind({"nvmlDeviceGetMemoryInfo_v2"}, api.memory_v2);
  from.Bind({"nvmlDeviceGetUUID"}, api.uuid);
  from.Bind({"nvmlDeviceGetPciInfo_v3"}, api.pci_info);
  from.Bind({"nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo"},
            api.pci_info_old);
  from.Bind({"nvmlDeviceGetMemoryAffinity"}, api.memory_affinity);
  from.Bind({"nvmlDeviceGetNvLinkState"}, api.link_state);
  from.Bind({"nvmlDeviceGetNvLinkRemotePciInfo_v2"}, api.link_peer);
  from.Bind({"nvmlDeviceGetP2PStatus"}, api.p2p_status);
  from.Bind({"nvmlDeviceGetMigMode"}, api.mig_mode);
  from.Bind({"nvmlDeviceGetMaxMigDeviceCount"}, api.mig_count_max);
  from.Bind({"nvmlDeviceGetMigDeviceHandleByIndex"}, api.mig_handle);
  from.Bind({"nvmlDeviceGetUtilizationRates"}, api.utilization);
  from.Bind({"nvmlDeviceGetPowerUsage"}, api.power);
  from.Bind({"nvmlDeviceGetTemperature"}, api.temperature);
  from.Bind({"nvmlDeviceGetTotalEccErrors"}, api.ecc_errors);
  from.Bind({"nvmlDeviceGetRemappedRows"}, api.remapped_rows);
  from.Bind({"nvmlDeviceGetComputeRunningProcesses_v3",
             "nvmlDeviceGetComputeRunningProcesses_v2"},
            api.processes);
  from.Bind({"nvmlDeviceGetComputeRunningProcesses"}, api.processes_v1);
  from.Bind({"nvmlEventSetCreate"}, api.event_set_create);
  from.Bind({"nvmlEventSetFree"}, api.event_set_free);
  from.Bind({"nvmlDeviceRegisterEvents"}, api.register_events);
  from.Bind({"nvmlEventSetWait_v2", "nvmlEventSetWait"}, api.event_set_wait);
  return api;
}

}  // namespace cohort::worker::nvml
