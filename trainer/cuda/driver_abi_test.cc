// What trainer/cuda/driver.h declares is what the real cuda.h does.  Built
// where that header is found; all of it is checked by the compiler.

#include <cuda.h>

// It renames these by macro; our table has the plain names.
#undef cuDeviceGetUuid
#undef cuDevicePrimaryCtxRelease
#undef cuMemGetInfo
#undef cuMemAlloc
#undef cuMemFree
#undef cuStreamDestroy
#undef cuEventDestroy
#undef cuIpcOpenMemHandle

#include <type_traits>

#include "gtest/gtest.h"

#include "trainer/cuda/driver.h"
#include "trainer/cuda/testing/same_abi.h"

namespace cohort::trainer::cuda {
namespace {

static_assert(kSuccess == CUDA_SUCCESS);
static_assert(kInvalidValue == CUDA_ERROR_INVALID_VALUE);
static_assert(kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(kNotInitialized == CUDA_ERROR_NOT_INITIALIZED);
static_assert(kStubLibrary == CUDA_ERROR_STUB_LIBRARY);
static_assert(kDeviceUnavailable == CUDA_ERROR_DEVICE_UNAVAILABLE);
static_assert(kNoDevice == CUDA_ERROR_NO_DEVICE);
static_assert(kInvalidDevice == CUDA_ERROR_INVALID_DEVICE);
static_assert(kInvalidImage == CUDA_ERROR_INVALID_IMAGE);
static_assert(kInvalidContext == CUDA_ERROR_INVALID_CONTEXT);
static_assert(kNoBinaryForGpu == CUDA_ERROR_NO_BINARY_FOR_GPU);
static_assert(kUnsupportedPtxVersion == CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
static_assert(kEccUncorrectable == CUDA_ERROR_ECC_UNCORRECTABLE);
static_assert(kNotFound == CUDA_ERROR_NOT_FOUND);
static_assert(kNotReady == CUDA_ERROR_NOT_READY);
static_assert(kIllegalAddress == CUDA_ERROR_ILLEGAL_ADDRESS);
static_assert(kSystemDriverMismatch == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
static_assert(kUnknown == CUDA_ERROR_UNKNOWN);
static_assert(kStreamDefault == CU_STREAM_DEFAULT);
static_assert(kStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(kEventDisableTiming == CU_EVENT_DISABLE_TIMING);
static_assert(kIpcMemLazyEnablePeerAccess ==
              CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
static_assert(sizeof(IpcMemoryHandle) == CU_IPC_HANDLE_SIZE);
static_assert(kPointerMemoryType == CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
static_assert(kMemoryTypeHost == CU_MEMORYTYPE_HOST);
static_assert(kMemoryTypeDevice == CU_MEMORYTYPE_DEVICE);
static_assert(std::is_same_v<DevicePointer, CUdeviceptr>);

#define COHORT_SAME(name)                                                     \
  static_assert(SameAbi<decltype(DriverTable::name), decltype(name)>::kValue, \
                #name)

COHORT_SAME(cuInit);
COHORT_SAME(cuDriverGetVersion);
COHORT_SAME(cuGetErrorName);
COHORT_SAME(cuGetErrorString);
COHORT_SAME(cuDeviceGetCount);
COHORT_SAME(cuDeviceGet);
COHORT_SAME(cuDeviceGetName);
COHORT_SAME(cuDevicePrimaryCtxRetain);
COHORT_SAME(cuCtxSetCurrent);
COHORT_SAME(cuMemFreeHost);
COHORT_SAME(cuMemHostAlloc);
COHORT_SAME(cuMemcpyAsync);
COHORT_SAME(cuMemsetD8Async);
COHORT_SAME(cuPointerGetAttribute);
COHORT_SAME(cuStreamCreate);
COHORT_SAME(cuStreamWaitEvent);
COHORT_SAME(cuEventCreate);
COHORT_SAME(cuEventRecord);
COHORT_SAME(cuEventQuery);
COHORT_SAME(cuIpcGetMemHandle);
COHORT_SAME(cuIpcCloseMemHandle);
COHORT_SAME(cuModuleLoadData);
COHORT_SAME(cuModuleUnload);
COHORT_SAME(cuModuleGetFunction);
COHORT_SAME(cuLaunchKernel);
// The newer ones of their name.
template <typename Ours, typename Theirs>
constexpr bool kSame = SameAbi<Ours, Theirs>::kValue;
#define COHORT_THEIRS(name) decltype(::name)
static_assert(kSame<decltype(DriverTable::cuDeviceGetUuid),
                    COHORT_THEIRS(cuDeviceGetUuid_v2)>);
static_assert(kSame<decltype(DriverTable::cuDevicePrimaryCtxRelease),
                    COHORT_THEIRS(cuDevicePrimaryCtxRelease_v2)>);
static_assert(
    kSame<decltype(DriverTable::cuMemGetInfo), COHORT_THEIRS(cuMemGetInfo_v2)>);
static_assert(
    kSame<decltype(DriverTable::cuMemAlloc), COHORT_THEIRS(cuMemAlloc_v2)>);
static_assert(
    kSame<decltype(DriverTable::cuMemFree), COHORT_THEIRS(cuMemFree_v2)>);
static_assert(kSame<decltype(DriverTable::cuStreamDestroy),
                    COHORT_THEIRS(cuStreamDestroy_v2)>);
static_assert(kSame<decltype(DriverTable::cuEventDestroy),
                    COHORT_THEIRS(cuEventDestroy_v2)>);
static_assert(kSame<decltype(DriverTable::cuIpcOpenMemHandle),
                    COHORT_THEIRS(cuIpcOpenMemHandle_v2)>);

TEST(DriverAbiTest, IsCheckedByTheCompiler) {
  EXPECT_EQ(sizeof(Uuid), sizeof(CUuuid));
}

}  // namespace
}  // namespace cohort::trainer::cuda
