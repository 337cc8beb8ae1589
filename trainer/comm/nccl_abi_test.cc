// What trainer/comm/nccl_library.h declares is what the real nccl.h does.
// Built where that header is found; nearly all is checked by the compiler.

#include <nccl.h>

#include <cstddef>

#include "gtest/gtest.h"

#include "trainer/comm/nccl_library.h"
#include "trainer/cuda/testing/same_abi.h"

namespace cohort::trainer::nccl {
namespace {

static_assert(kSuccess == ncclSuccess);
static_assert(kUnhandledCudaError == ncclUnhandledCudaError);
static_assert(kSystemError == ncclSystemError);
static_assert(kInternalError == ncclInternalError);
static_assert(kInvalidArgument == ncclInvalidArgument);
static_assert(kInvalidUsage == ncclInvalidUsage);
static_assert(kRemoteError == ncclRemoteError);
static_assert(kInProgress == ncclInProgress);

static_assert(kInt32 == ncclInt32);
static_assert(kInt64 == ncclInt64);
static_assert(kFloat16 == ncclFloat16);
static_assert(kFloat32 == ncclFloat32);
static_assert(kFloat64 == ncclFloat64);
static_assert(kBfloat16 == ncclBfloat16);

static_assert(kSum == ncclSum);
static_assert(kMax == ncclMax);
static_assert(kMin == ncclMin);
static_assert(kAvg == ncclAvg);

static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
static_assert(kUndefined == NCCL_CONFIG_UNDEF_INT);

// A prefix of the real one.
static_assert(offsetof(Config, size) == offsetof(ncclConfig_t, size));
static_assert(offsetof(Config, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(Config, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(Config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(Config, cga_cluster_size) ==
              offsetof(ncclConfig_t, cgaClusterSize));
static_assert(offsetof(Config, min_ctas) == offsetof(ncclConfig_t, minCTAs));
static_assert(offsetof(Config, max_ctas) == offsetof(ncclConfig_t, maxCTAs));
static_assert(offsetof(Config, net_name) == offsetof(ncclConfig_t, netName));
static_assert(offsetof(Config, split_share) ==
              offsetof(ncclConfig_t, splitShare));
static_assert(sizeof(Config) <= sizeof(ncclConfig_t));

#define COHORT_SAME(name)                                                 \
  static_assert(                                                          \
      cuda::SameAbi<decltype(NcclTable::name), decltype(::name)>::kValue, \
      #name)

COHORT_SAME(ncclGetVersion);
COHORT_SAME(ncclGetErrorString);
COHORT_SAME(ncclGetLastError);
COHORT_SAME(ncclGetUniqueId);
COHORT_SAME(ncclCommInitRankConfig);
COHORT_SAME(ncclCommGetAsyncError);
COHORT_SAME(ncclCommFinalize);
COHORT_SAME(ncclCommDestroy);
COHORT_SAME(ncclCommAbort);
COHORT_SAME(ncclAllReduce);
COHORT_SAME(ncclBroadcast);
COHORT_SAME(ncclGroupStart);
COHORT_SAME(ncclGroupEnd);
#if NCCL_VERSION_CODE >= 22807
COHORT_SAME(ncclCommRevoke);
#endif

TEST(NcclAbiTest, FillsTheConfigAsTheRealInitializerDoes) {
  const ncclConfig_t real = NCCL_CONFIG_INITIALIZER;
  const Config ours;
  EXPECT_EQ(ours.magic, real.magic);
  EXPECT_EQ(ours.split_share, real.splitShare);
  EXPECT_EQ(ours.net_name, real.netName);
}

}  // namespace
}  // namespace cohort::trainer::nccl
