/* A libcuda.so.1 of a machine whose GPU is stuck: cuInit never comes back in
 * rank 0, and finds no device in the others.  It has all symbols that we ask
 * for. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cuDriverGetVersion(int *version);
int cuInit(unsigned flags);

int cuDriverGetVersion(int *version) {
  *version = 13000;
  return 0;
}

int cuInit(unsigned flags) {
  const char *rank = getenv("RANK");
  (void)flags;
  while (rank != NULL && strcmp(rank, "0") == 0) pause();
  return 100; /* CUDA_ERROR_NO_DEVICE */
}

#define COHORT_SYMBOL(name) \
  int name(void);           \
  int name(void) { return 999; }
COHORT_SYMBOL(cuGetErrorName)
COHORT_SYMBOL(cuGetErrorString)
COHORT_SYMBOL(cuDeviceGetCount)
COHORT_SYMBOL(cuDeviceGet)
COHORT_SYMBOL(cuDeviceGetName)
COHORT_SYMBOL(cuDeviceGetUuid_v2)
COHORT_SYMBOL(cuDevicePrimaryCtxRetain)
COHORT_SYMBOL(cuDevicePrimaryCtxRelease_v2)
COHORT_SYMBOL(cuCtxSetCurrent)
COHORT_SYMBOL(cuMemGetInfo_v2)
COHORT_SYMBOL(cuMemAlloc_v2)
COHORT_SYMBOL(cuMemFree_v2)
COHORT_SYMBOL(cuMemHostAlloc)
COHORT_SYMBOL(cuMemFreeHost)
COHORT_SYMBOL(cuMemcpyAsync)
COHORT_SYMBOL(cuMemsetD8Async)
COHORT_SYMBOL(cuPointerGetAttribute)
COHORT_SYMBOL(cuStreamCreate)
COHORT_SYMBOL(cuStreamDestroy_v2)
COHORT_SYMBOL(cuStreamWaitEvent)
COHORT_SYMBOL(cuEventCreate)
COHORT_SYMBOL(cuEventRecord)
COHORT_SYMBOL(cuEventQuery)
COHORT_SYMBOL(cuEventDestroy_v2)
COHORT_SYMBOL(cuIpcGetMemHandle)
COHORT_SYMBOL(cuIpcOpenMemHandle_v2)
COHORT_SYMBOL(cuIpcCloseMemHandle)
COHORT_SYMBOL(cuModuleLoadData)
COHORT_SYMBOL(cuModuleUnload)
COHORT_SYMBOL(cuModuleGetFunction)
COHORT_SYMBOL(cuLaunchKernel)
