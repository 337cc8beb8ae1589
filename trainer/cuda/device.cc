#include "trainer/cuda/device.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::trainer::cuda {
namespace {

constexpr int kNameBytes = 96;

// The ids that a variable names; none when it is not set.
std::vector<std::string> Ids(const char* variable) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets it.
  const char* const ids = std::getenv(variable);
  if (ids == nullptr) return {};
  return absl::StrSplit(ids, ',', absl::SkipEmpty());
}

}  // namespace

int VisibleOrdinal(int own) {
  const std::vector<std::string> granted = Ids("COHORT_GPU_IDS");
  if (own < 0 || own >= static_cast<int>(granted.size())) return own;
  const std::vector<std::string> visible = Ids("CUDA_VISIBLE_DEVICES");
  const auto found = std::find(visible.begin(), visible.end(), granted[own]);
  return found == visible.end() ? own
                                : static_cast<int>(found - visible.begin());
}

std::string VisibleName(int ordinal) {
  const std::vector<std::string> visible = Ids("CUDA_VISIBLE_DEVICES");
  if (ordinal >= 0 && ordinal < static_cast<int>(visible.size()) &&
      (absl::StartsWith(visible[ordinal], "GPU-") ||
       absl::StartsWith(visible[ordinal], "MIG-"))) {
    return visible[ordinal];
  }
  return absl::StrCat("GPU ", ordinal);
}

std::string UuidText(const Uuid& uuid) {
  const std::string hex =
      absl::BytesToHexString(absl::string_view(uuid.bytes, sizeof(uuid.bytes)));
  return absl::StrCat("GPU-", hex.substr(0, 8), "-", hex.substr(8, 4), "-",
                      hex.substr(12, 4), "-", hex.substr(16, 4), "-",
                      hex.substr(20));
}

absl::StatusOr<std::unique_ptr<Device>> Device::Open(
    std::shared_ptr<const DriverTable> driver, int ordinal, BeforeCall before) {
  const DriverTable& table = *driver;
  std::string name = VisibleName(ordinal);
  const auto check = [&](const char* call, Result result) {
    if (result == kSuccess) return absl::OkStatus();
    return Annotate(DriverStatus(table, result, call), name);
  };
  int count = 0;
  before("cuDeviceGetCount");
  COHORT_RETURN_IF_ERROR(
      check("cuDeviceGetCount", table.cuDeviceGetCount(&count)));
  if (ordinal < 0 || ordinal >= count) {
    return absl::FailedPreconditionError(
        absl::StrCat("no GPU ", ordinal, ": ", count, " visible here"));
  }
  DeviceHandle handle = 0;
  before("cuDeviceGet");
  COHORT_RETURN_IF_ERROR(
      check("cuDeviceGet", table.cuDeviceGet(&handle, ordinal)));
  Uuid uuid = {};
  before("cuDeviceGetUuid");
  COHORT_RETURN_IF_ERROR(
      check("cuDeviceGetUuid", table.cuDeviceGetUuid(&uuid, handle)));
  char model[kNameBytes] = {};
  before("cuDeviceGetName");
  COHORT_RETURN_IF_ERROR(
      check("cuDeviceGetName",
            table.cuDeviceGetName(model, sizeof(model) - 1, handle)));
  const std::string id = UuidText(uuid);
  name = absl::StrCat(id, " (", model, ")");
  Context context = nullptr;
  before("cuDevicePrimaryCtxRetain");
  COHORT_RETURN_IF_ERROR(
      check("cuDevicePrimaryCtxRetain",
            table.cuDevicePrimaryCtxRetain(&context, handle)));
  // From here on the destructor releases it.
  std::unique_ptr<Device> device(
      new Device(std::move(driver), handle, context, id, name));
  before("cuCtxSetCurrent");
  COHORT_RETURN_IF_ERROR(device->Enter());
  return device;
}

absl::Status Device::Enter() const {
  return Check(driver_->cuCtxSetCurrent(context_), "cuCtxSetCurrent");
}

Device::Device(std::shared_ptr<const DriverTable> driver, DeviceHandle handle,
               Context context, std::string uuid, std::string name)
    : driver_(std::move(driver)),
      handle_(handle),
      context_(context),
      uuid_(std::move(uuid)),
      name_(std::move(name)) {}

Device::~Device() {
  driver_->cuCtxSetCurrent(nullptr);
  driver_->cuDevicePrimaryCtxRelease(handle_);
}

absl::Status Device::Check(Result result, absl::string_view what) const {
  if (result == kSuccess) return absl::OkStatus();
  return Annotate(DriverStatus(*driver_, result, what), name_);
}

absl::StatusOr<DevicePointer> Device::Allocate(size_t bytes,
                                               BeforeCall before) const {
  DevicePointer memory = 0;
  before("cuMemAlloc");
  const Result result = driver_->cuMemAlloc(&memory, bytes);
  if (result == kSuccess) return memory;
  std::string what = absl::StrCat("cuMemAlloc of ", bytes, " bytes");
  size_t free = 0;
  size_t total = 0;
  if (result == kOutOfMemory) {
    before("cuMemGetInfo");
    if (driver_->cuMemGetInfo(&free, &total) == kSuccess) {
      absl::StrAppend(&what, " (", free, " of ", total, " free)");
    }
  }
  return Check(result, what);
}

void Device::Free(DevicePointer memory) const { driver_->cuMemFree(memory); }

absl::StatusOr<std::byte*> Device::AllocatePinned(size_t bytes) const {
  void* memory = nullptr;
  COHORT_RETURN_IF_ERROR(
      Check(driver_->cuMemHostAlloc(&memory, bytes, 0),
            absl::StrCat("cuMemHostAlloc of ", bytes, " bytes")));
  return static_cast<std::byte*>(memory);
}

void Device::FreePinned(std::byte* memory) const {
  driver_->cuMemFreeHost(memory);
}

bool Device::Reaches(const void* address) const {
  unsigned type = 0;
  // Memory that CUDA does not know is an error, and the usual case.
  return driver_->cuPointerGetAttribute(&type, kPointerMemoryType,
                                        reinterpret_cast<uintptr_t>(address)) ==
             kSuccess &&
         type == kMemoryTypeDevice;
}

}  // namespace cohort::trainer::cuda
