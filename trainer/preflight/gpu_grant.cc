#include "trainer/preflight/gpu_grant.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/str_split.h"

#include "common/status_macros.h"
#include "trainer/cuda/device.h"

namespace cohort::trainer {
std::optional<GpuGrant> GpuGrantOfThisRank() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets it.
  const char* const ids = std::getenv("COHORT_GPU_IDS");
  if (ids == nullptr || *ids == '\0') return std::nullopt;
  GpuGrant grant;
  grant.ordinals.clear();
  int own = 0;
  for ([[maybe_unused]] const auto id : absl::StrSplit(ids, ',')) {
    grant.ordinals.push_back(cuda::VisibleOrdinal(own++));
  }
  return grant;
}

absl::StatusOr<std::vector<std::string>> OpenGpus(const GpuGrant& grant,
                                                  absl::Duration timeout,
                                                  cuda::CallWatch::Hung hung) {
  std::vector<std::string> names;
  for (const int ordinal : grant.ordinals) {
    cuda::CallWatch watch(cuda::VisibleName(ordinal), timeout, hung);
    COHORT_ASSIGN_OR_RETURN(const auto driver, watch.Load(grant.load_driver));
    COHORT_ASSIGN_OR_RETURN(const auto device,
                            cuda::Device::Open(driver, ordinal));
    names.push_back(device->name());
  }
  return names;
}

}  // namespace cohort::trainer
