#include "trainer/cuda/driver.h"

#include "absl/strings/str_cat.h"

#include "common/dynamic_library.h"
#include "common/status_macros.h"

namespace cohort::trainer::cuda {
namespace {

absl::Status BindAll(const DynamicLibrary& library, DriverTable& t) {
  const char* missing = nullptr;
#define COHORT_BIND(name, symbol) \
  if (missing == nullptr && !library.Bind(symbol, t.name)) missing = symbol
  COHORT_BIND(cuInit, "cuInit");
  COHORT_BIND(cuDriverGetVersion, "cuDriverGetVersion");
  COHORT_BIND(cuGetErrorName, "cuGetErrorName");
  COHORT_BIND(cuGetErrorString, "cuGetErrorString");
  COHORT_BIND(cuDeviceGetCount, "cuDeviceGetCount");
  COHORT_BIND(cuDeviceGet, "cuDeviceGet");
  COHORT_BIND(cuDeviceGetName, "cuDeviceGetName");
  COHORT_BIND(cuDeviceGetUuid, "cuDeviceGetUuid_v2");
  COHORT_BIND(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  COHORT_BIND(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2");
  COHORT_BIND(cuCtxSetCurrent, "cuCtxSetCurrent");
  COHORT_BIND(cuMemGetInfo, "cuMemGetInfo_v2");
  COHORT_BIND(cuMemAlloc, "cuMemAlloc_v2");
  COHORT_BIND(cuMemFree, "cuMemFree_v2");
  COHORT_BIND(cuMemHostAlloc, "cuMemHostAlloc");
  COHORT_BIND(cuMemFreeHost, "cuMemFreeHost");
  COHORT_BIND(cuMemcpyAsync, "cuMemcpyAsync");
  COHORT_BIND(cuMemsetD8Async, "cuMemsetD8Async");
  COHORT_BIND(cuPointerGetAttribute, "cuPointerGetAttribute");
  COHORT_BIND(cuStreamCreate, "cuStreamCreate");
  COHORT_BIND(cuStreamDestroy, "cuStreamDestroy_v2");
  COHORT_BIND(cuStreamWaitEvent, "cuStreamWaitEvent");
  COHORT_BIND(cuEventCreate, "cuEventCreate");
  COHORT_BIND(cuEventRecord, "cuEventRecord");
  COHORT_BIND(cuEventQuery, "cuEventQuery");
  COHORT_BIND(cuEventDestroy, "cuEventDestroy_v2");
  COHORT_BIND(cuIpcGetMemHandle, "cuIpcGetMemHandle");
  COHORT_BIND(cuIpcOpenMemHandle, "cuIpcOpenMemHandle_v2");
  COHORT_BIND(cuIpcCloseMemHandle, "cuIpcCloseMemHandle");
  COHORT_BIND(cuModuleLoadData, "cuModuleLoadData");
  COHORT_BIND(cuModuleUnload, "cuModuleUnload");
  COHORT_BIND(cuModuleGetFunction, "cuModuleGetFunction");
  COHORT_BIND(cuLaunchKernel, "cuLaunchKernel");
#undef COHORT_BIND
  if (missing == nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the CUDA driver lacks ", missing, ": it is older than CUDA ",
      DriverVersionText(kDriverVersionMin), "; update it"));
}

// What a driver function answers, in its own words where it has any.
std::string ResultText(const std::function<Result(Result, const char**)>& words,
                       Result result) {
  const char* text = nullptr;
  if (!words || words(result, &text) != kSuccess || text == nullptr) return "";
  return text;
}

absl::StatusCode CodeOf(Result result) {
  switch (result) {
    case kSuccess:
      return absl::StatusCode::kOk;
    case kOutOfMemory:
      return absl::StatusCode::kResourceExhausted;
    case kNotInitialized:
    case kStubLibrary:
    case kDeviceUnavailable:
    case kNoDevice:
    case kInvalidDevice:
    case kSystemDriverMismatch:
    case kInvalidImage:
    case kNoBinaryForGpu:
    case kUnsupportedPtxVersion:
    case kNotFound:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kUnavailable;
  }
}

}  // namespace

std::string DriverVersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

absl::StatusOr<std::shared_ptr<const DriverTable>> LoadDriver(
    const std::string& library, BeforeCall before) {
  before("dlopen of the CUDA driver");
  const auto opened = DynamicLibrary::Open(library);
  if (!opened.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("no CUDA driver: ", opened.status().message()));
  }
  auto driver = std::make_shared<DriverTable>();
  COHORT_RETURN_IF_ERROR(BindAll(*opened, *driver));
  COHORT_RETURN_IF_ERROR(InitDriver(*driver, before));
  return driver;
}

absl::Status InitDriver(const DriverTable& driver, BeforeCall before) {
  before("cuDriverGetVersion");
  // Before cuInit, which a driver that is too old may fail for other reasons.
  int version = 0;
  COHORT_RETURN_IF_ERROR(DriverStatus(
      driver, driver.cuDriverGetVersion(&version), "cuDriverGetVersion"));
  if (version < kDriverVersionMin) {
    return absl::FailedPreconditionError(
        absl::StrCat("the CUDA driver is of CUDA ", DriverVersionText(version),
                     ", at least ", DriverVersionText(kDriverVersionMin),
                     " is needed: update it"));
  }
  before("cuInit");
  return DriverStatus(driver, driver.cuInit(0), "cuInit");
}

absl::Status DriverStatus(const DriverTable& driver, Result result,
                          absl::string_view what) {
  if (result == kSuccess) return absl::OkStatus();
  std::string name = ResultText(driver.cuGetErrorName, result);
  if (name.empty()) name = "CUDA error";
  std::string message = absl::StrCat(what, ": ", name, " (", result, ")");
  const std::string text = ResultText(driver.cuGetErrorString, result);
  if (!text.empty()) absl::StrAppend(&message, ": ", text);
  return absl::Status(CodeOf(result), message);
}

}  // namespace cohort::trainer::cuda
