#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "trainer/cuda/lookup.h"

// The part of the CUDA driver API that we use, declared here with cuda.h's ABI,
// so that nothing of CUDA is needed to build; driver_abi_test compares it with
// the real header where there is one.
namespace cohort::trainer::cuda {

// CUresult.
using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidValue = 1;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kNotInitialized = 3;
inline constexpr Result kStubLibrary = 34;
inline constexpr Result kDeviceUnavailable = 46;
inline constexpr Result kNoDevice = 100;
inline constexpr Result kInvalidDevice = 101;
inline constexpr Result kInvalidImage = 200;
inline constexpr Result kInvalidContext = 201;
inline constexpr Result kNoBinaryForGpu = 209;
inline constexpr Result kEccUncorrectable = 214;
inline constexpr Result kUnsupportedPtxVersion = 222;
inline constexpr Result kNotFound = 500;
inline constexpr Result kNotReady = 600;
inline constexpr Result kIllegalAddress = 700;
inline constexpr Result kSystemDriverMismatch = 803;
inline constexpr Result kUnknown = 999;

using DeviceHandle = int;  // CUdevice
using Context = struct ContextOpaque*;
using Stream = struct StreamOpaque*;
using Event = struct EventOpaque*;
using Module = struct ModuleOpaque*;
using Function = struct FunctionOpaque*;
using DevicePointer = unsigned long long;  // NOLINT(google-runtime-int)

// One address space serves the host and its devices.
inline DevicePointer PointerTo(const void* address) {
  return reinterpret_cast<uintptr_t>(address);
}
inline std::byte* AddressOf(DevicePointer pointer) {
  return reinterpret_cast<std::byte*>(static_cast<uintptr_t>(pointer));
}

struct Uuid {
  char bytes[16];
};
// Names memory from cuMemAlloc to other processes of this machine.
struct IpcMemoryHandle {
  char bytes[64];
};

inline constexpr unsigned kStreamDefault = 0;  // ordered with the NULL stream
inline constexpr unsigned kStreamNonBlocking = 1;  // not ordered with it
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kIpcMemLazyEnablePeerAccess = 1;
inline constexpr int kPointerMemoryType = 2;
inline constexpr unsigned kMemoryTypeHost = 1;
inline constexpr unsigned kMemoryTypeDevice = 2;

// Functions of libcuda.so.1 under their names; where cuda.h renames one
// (cuMemAlloc to cuMemAlloc_v2), the newer is meant.  All are set in a table
// from LoadDriver; a test's may lack what nobody calls.
struct DriverTable {
  std::function<Result(unsigned flags)> cuInit;
  std::function<Result(int*)> cuDriverGetVersion;
  std::function<Result(Result, const char**)> cuGetErrorName;
  std::function<Result(Result, const char**)> cuGetErrorString;

  std::function<Result(int*)> cuDeviceGetCount;
  std::function<Result(DeviceHandle*, int ordinal)> cuDeviceGet;
  std::function<Result(char*, int, DeviceHandle)> cuDeviceGetName;
  std::function<Result(Uuid*, DeviceHandle)> cuDeviceGetUuid;
  std::function<Result(Context*, DeviceHandle)> cuDevicePrimaryCtxRetain;
  std::function<Result(DeviceHandle)> cuDevicePrimaryCtxRelease;
  std::function<Result(Context)> cuCtxSetCurrent;

  std::function<Result(size_t* free, size_t* total)> cuMemGetInfo;
  std::function<Result(DevicePointer*, size_t)> cuMemAlloc;
  std::function<Result(DevicePointer)> cuMemFree;
  std::function<Result(void**, size_t, unsigned flags)> cuMemHostAlloc;
  std::function<Result(void*)> cuMemFreeHost;
  std::function<Result(DevicePointer to, DevicePointer from, size_t, Stream)>
      cuMemcpyAsync;
  std::function<Result(DevicePointer, unsigned char, size_t, Stream)>
      cuMemsetD8Async;
  std::function<Result(void* value, int attribute, DevicePointer)>
      cuPointerGetAttribute;

  std::function<Result(Stream*, unsigned flags)> cuStreamCreate;
  std::function<Result(Stream)> cuStreamDestroy;
  std::function<Result(Stream, Event, unsigned flags)> cuStreamWaitEvent;
  std::function<Result(Event*, unsigned flags)> cuEventCreate;
  std::function<Result(Event, Stream)> cuEventRecord;
  std::function<Result(Event)> cuEventQuery;
  std::function<Result(Event)> cuEventDestroy;

  std::function<Result(IpcMemoryHandle*, DevicePointer)> cuIpcGetMemHandle;
  std::function<Result(DevicePointer*, IpcMemoryHandle, unsigned flags)>
      cuIpcOpenMemHandle;
  std::function<Result(DevicePointer)> cuIpcCloseMemHandle;

  // For kernels of our own.
  std::function<Result(Module*, const void* image)> cuModuleLoadData;
  std::function<Result(Module)> cuModuleUnload;
  std::function<Result(Function*, Module, const char*)> cuModuleGetFunction;
  std::function<Result(Function, unsigned grid_x, unsigned grid_y,
                       unsigned grid_z, unsigned block_x, unsigned block_y,
                       unsigned block_z, unsigned shared_bytes, Stream,
                       void** parameters, void** extra)>
      cuLaunchKernel;
};

// CUDA 11.4, which cuDeviceGetUuid_v2 came with: driver 470.
inline constexpr int kDriverVersionMin = 11040;

// "13.0" for 13000.
std::string DriverVersionText(int version);

// Where every driver installs itself.
inline constexpr char kDriverLibrary[] = "libcuda.so.1";

// The machine's driver, initialised; loaded once and never unloaded.
// FAILED_PRECONDITION, saying which: no driver, one older than
// kDriverVersionMin, one that lacks a symbol, no device.  Thread-safe.  Blocks
// as long as the driver does: for good, where a GPU is stuck.
absl::StatusOr<std::shared_ptr<const DriverTable>> LoadDriver(
    const std::string& library = kDriverLibrary, BeforeCall before = Unwatched);

// cuInit and the version check of a table that is filled.
absl::Status InitDriver(const DriverTable& driver,
                        BeforeCall before = Unwatched);

// OK for kSuccess; else "what: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory".
// RESOURCE_EXHAUSTED when memory is out; FAILED_PRECONDITION when this process
// can use no such device, or the device no such kernels; UNAVAILABLE for faults
// of the device or the driver: nothing on the device works after most of them.
absl::Status DriverStatus(const DriverTable& driver, Result result,
                          absl::string_view what);

}  // namespace cohort::trainer::cuda
