// Every call of NCCL and CUDA that NcclComm makes fails on cue, and hangs on
// cue. Ranks are threads: trainer/comm/testing/gpu_world.h.

#include <array>
#include <latch>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/real_clock.h"
#include "common/testing/status_matchers.h"
#include "trainer/comm/nccl_comm.h"
#include "trainer/comm/testing/gpu_world.h"

namespace cohort::trainer {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kLong = absl::Seconds(60);
const auto kAborted = absl::StatusCode::kAborted;

absl::Status Sum(Comm& comm, absl::Duration deadline = kLong) {
  std::array<float, 100> values = {};
  return comm.AllReduce(Buffer::Of(std::span<float>(values)), ReduceOp::kSum,
                        deadline);
}

struct Fault {
  const char* call;
  bool is_nccls;

  cuda::CallFaults& Of(GpuWorld& gang, int rank) const {
    return is_nccls ? gang.nccl(rank).faults() : gang.driver(rank).faults();
  }
};

std::string FaultName(const ::testing::TestParamInfo<Fault>& info) {
  return info.param.call == std::string("dlopen") && info.param.is_nccls
             ? "dlopen_of_nccl"
             : info.param.call;
}

class ConnectFaultTest : public ::testing::TestWithParam<Fault> {};

INSTANTIATE_TEST_SUITE_P(
    Calls, ConnectFaultTest,
    ::testing::Values(
        Fault{"dlopen", false}, Fault{"cuDriverGetVersion", false},
        Fault{"cuInit", false}, Fault{"dlopen", true},
        Fault{"ncclGetVersion", true}, Fault{"cuDeviceGetCount", false},
        Fault{"cuDeviceGet", false}, Fault{"cuDeviceGetUuid", false},
        Fault{"cuDeviceGetName", false},
        Fault{"cuDevicePrimaryCtxRetain", false},
        Fault{"cuCtxSetCurrent", false}, Fault{"cuStreamCreate", false},
        Fault{"cuEventCreate", false}, Fault{"ncclGetUniqueId", true},
        Fault{"ncclCommInitRankConfig", true},
        Fault{"ncclCommGetAsyncError", true}),
    FaultName);

TEST_P(ConnectFaultTest, TellsAllRanksWhenItFails) {
  GpuWorld gang(2);
  GetParam().Of(gang, 0).Fail(GetParam().call, GetParam().is_nccls
                                                   ? nccl::kSystemError
                                                   : cuda::kEccUncorrectable);
  RunRanks(2, [&](int rank) {
    const auto comm = gang.Join(rank);
    if (rank == 0 || absl::IsFailedPrecondition(comm.status())) {
      EXPECT_FALSE(comm.ok());
      EXPECT_THAT(std::string(comm.status().message()),
                  AllOf(HasSubstr(GetParam().call), HasSubstr("rank 0")));
      return;
    }
    // Where it had come up itself, its first call says so.
    EXPECT_THAT(comm.ok() ? (*comm)->Barrier(kLong) : comm.status(),
                StatusIs(kAborted));
  });
  gang.ExpectClean();
}

// Each call before the ranks choose: all ranks hear which one hangs, where, and
// are done; the process that hangs in it is killed.
TEST_P(ConnectFaultTest, EndsByItsDeadlineWhenItHangs) {
  const bool is_chosen =
      std::string(GetParam().call) == "ncclCommInitRankConfig" ||
      std::string(GetParam().call) == "ncclCommGetAsyncError";
  GpuWorld gang(2);
  GetParam().Of(gang, 0).Hang(GetParam().call);
  RunRanks(2, [&](int rank) {
    GpuCommOptions options = gang.Options(rank);
    UseShortTimeouts(options);
    if (is_chosen) {
      options.connect_deadline = absl::Milliseconds(300);
    } else if (rank == 0) {
      options.deadlines.take = absl::Milliseconds(100);
    }
    const auto comm = gang.Join(rank, std::move(options));
    if (!is_chosen) {
      EXPECT_THAT(
          comm,
          StatusIs(absl::StatusCode::kFailedPrecondition,
                   AllOf(HasSubstr("rank 0 on GPU"),
                         HasSubstr(absl::StrCat("in ", GetParam().call)))));
      return;
    }
    EXPECT_FALSE(comm.ok() && rank == 0);
    EXPECT_THAT(comm.ok() ? (*comm)->Barrier(kLong) : absl::AbortedError(""),
                StatusIs(kAborted));
  });
  EXPECT_THAT(gang.kills(0), Contains(AllOf(HasSubstr("rank 0 on GPU"),
                                            HasSubstr("of epoch 2 hangs in"),
                                            HasSubstr(GetParam().call))));
  gang.ExpectClean();
}

class RunFaultTest : public ::testing::TestWithParam<Fault> {
 protected:
  // What is asked only while the GPU works.
  static bool IsLook(const Fault& fault) {
    return fault.call == std::string("ncclCommGetAsyncError");
  }
  static void KeepBusyFor(const Fault& fault, GpuWorld& gang) {
    if (IsLook(fault)) gang.fabric().Hold();
  }

  // An operation of both kinds of memory.
  static absl::Status Work(GpuComm& comm, absl::Duration deadline) {
    auto memory = comm.Allocate(4000);
    if (!memory.ok()) return memory.status();
    const absl::Status zeroed = comm.Zero(*memory);
    if (!zeroed.ok()) return zeroed;
    const Buffer device = {.data = memory->data(), .count = 1000};
    const absl::Status sent = comm.Broadcast(device, 0, deadline);
    if (!sent.ok()) return sent;
    return Sum(comm, deadline);
  }
};

INSTANTIATE_TEST_SUITE_P(
    Calls, RunFaultTest,
    ::testing::Values(
        Fault{"cuMemsetD8Async", false}, Fault{"cuEventRecord", false},
        Fault{"cuEventQuery", false}, Fault{"cuMemcpyAsync", false},
        Fault{"ncclGroupStart", true}, Fault{"ncclAllReduce", true},
        Fault{"ncclBroadcast", true}, Fault{"ncclGroupEnd", true},
        Fault{"ncclCommGetAsyncError", true}),
    FaultName);

TEST_P(RunFaultTest, AbortsAllRanksWhenItFails) {
  GpuWorld gang(3);
  KeepBusyFor(GetParam(), gang);
  std::latch connected(3);
  gang.Run([&](int rank, GpuComm& comm) {
    connected.arrive_and_wait();
    if (rank == 1) {
      const int result = GetParam().is_nccls ? nccl::kUnhandledCudaError
                                             : cuda::kIllegalAddress;
      if (IsLook(GetParam())) {
        GetParam().Of(gang, 1).FailAlways(GetParam().call, result);
      } else {
        GetParam().Of(gang, 1).Fail(GetParam().call, result);
      }
    }
    const absl::Status done = Work(comm, kLong);
    EXPECT_THAT(done, StatusIs(kAborted));
    if (rank == 1) {
      EXPECT_THAT(
          std::string(done.message()),
          AllOf(HasSubstr("rank 1 on GPU-02"), HasSubstr(GetParam().call)));
    }
    EXPECT_THAT(comm.Barrier(kLong), StatusIs(kAborted));
  });
  gang.ExpectClean();
}

// The same and what else may hang, while its failure means no harm.
class RunHangTest : public RunFaultTest {};

INSTANTIATE_TEST_SUITE_P(
    Calls, RunHangTest,
    ::testing::Values(
        Fault{"cuMemsetD8Async", false}, Fault{"cuEventRecord", false},
        Fault{"cuEventQuery", false}, Fault{"cuMemcpyAsync", false},
        Fault{"cuPointerGetAttribute", false}, Fault{"cuMemAlloc", false},
        Fault{"cuMemHostAlloc", false}, Fault{"ncclGroupStart", true},
        Fault{"ncclAllReduce", true}, Fault{"ncclBroadcast", true},
        Fault{"ncclGroupEnd", true}, Fault{"ncclCommGetAsyncError", true}),
    FaultName);

TEST_P(RunHangTest, LeavesTheCallerByItsDeadlineAndAsksToKill) {
  GpuWorld gang(2);
  KeepBusyFor(GetParam(), gang);
  std::latch connected(2);
  gang.Run(
      [&](int rank, GpuComm& comm) {
        connected.arrive_and_wait();
        if (rank == 1) GetParam().Of(gang, 1).Hang(GetParam().call);
        const absl::Duration begin = MonotonicNow();
        EXPECT_FALSE(Work(comm, absl::Milliseconds(200)).ok());
        EXPECT_LT(MonotonicNow() - begin, absl::Seconds(10));
      },
      UseShortTimeouts);
  EXPECT_THAT(gang.kills(1), Contains(HasSubstr(GetParam().call)));
  gang.ExpectClean();
}

// Asked only for the words of an error.
TEST(MemoryHangTest, NamesWhatHangsAfterMemoryRanOut) {
  GpuWorld gang(1, /*version=*/21800);
  gang.Run(
      [&gang](int, GpuComm& comm) {
        gang.driver(0).faults().Fail("cuMemAlloc", cuda::kOutOfMemory);
        gang.driver(0).faults().Hang("cuMemGetInfo");
        EXPECT_THAT(comm.Allocate(400),
                    StatusIs(absl::StatusCode::kDeadlineExceeded,
                             AllOf(HasSubstr("rank 0 on GPU-01"),
                                   HasSubstr("in cuMemGetInfo"))));
      },
      UseShortTimeouts);
  EXPECT_THAT(gang.kills(0), Contains(HasSubstr("cuMemGetInfo")));
  gang.ExpectClean();
}

// What a call began goes wrong in the background.
TEST(BackgroundFaultTest, OfAnInitIsToldToAllRanks) {
  GpuWorld gang(2);
  gang.nccl(0).FailInBackground("ncclCommInitRankConfig", nccl::kSystemError);
  RunRanks(2, [&](int rank) {
    const auto comm = gang.Join(rank);
    if (rank == 0) {
      EXPECT_THAT(comm, StatusIs(absl::StatusCode::kUnavailable,
                                 AllOf(HasSubstr("rank 0 on GPU-01"),
                                       HasSubstr("ncclCommInitRankConfig"))));
      return;
    }
    EXPECT_THAT(comm.ok() ? (*comm)->Barrier(kLong) : comm.status(),
                StatusIs(kAborted));
  });
  gang.ExpectClean();
}

TEST(BackgroundFaultTest, OfALaunchAbortsAllRanks) {
  GpuWorld gang(3);
  gang.nccl(1).FailInBackground("ncclGroupEnd", nccl::kRemoteError);
  gang.Run([](int rank, GpuComm& comm) {
    const absl::Status done = Sum(comm);
    EXPECT_THAT(done, StatusIs(kAborted));
    if (rank == 1) {
      EXPECT_THAT(std::string(done.message()),
                  AllOf(HasSubstr("rank 1 on GPU-02"),
                        HasSubstr("ncclGroupEnd"), HasSubstr("remote")));
    }
  });
  gang.ExpectClean();
}

// It is what was to be done anyway: nothing is lost, and nobody is killed.
TEST(BackgroundFaultTest, OfALeaveOrARevokeEndsByTheNextLevel) {
  for (const std::string call : {"ncclCommFinalize", "ncclCommRevoke"}) {
    SCOPED_TRACE(call);
    GpuWorld gang(1);
    gang.nccl(0).FailInBackground(call, nccl::kInternalError);
    gang.Run([&call](int, GpuComm& comm) {
      COHORT_ASSERT_OK(Sum(comm));
      if (call == "ncclCommRevoke") comm.Revoke();
    });
    EXPECT_EQ(gang.nccl(0).faults().Count(call), 1);
    EXPECT_EQ(gang.nccl(0).faults().Count("ncclCommAbort"), 1);
    EXPECT_THAT(gang.kills(0), IsEmpty());
    gang.ExpectClean();
  }
}

// What is called where nothing may be lost any more.
class CloseFaultTest : public ::testing::TestWithParam<Fault> {};

INSTANTIATE_TEST_SUITE_P(
    Calls, CloseFaultTest,
    ::testing::Values(Fault{"ncclCommFinalize", true},
                      Fault{"ncclCommDestroy", true}, Fault{"cuMemFree", false},
                      Fault{"cuMemFreeHost", false},
                      Fault{"cuStreamDestroy", false},
                      Fault{"cuEventDestroy", false},
                      Fault{"cuDevicePrimaryCtxRelease", false}),
    FaultName);

TEST_P(CloseFaultTest, ClosesWhenItHangs) {
  GpuWorld gang(1);
  gang.Run(
      [&](int, GpuComm& comm) {
        COHORT_ASSERT_OK(comm.Allocate(400));
        COHORT_ASSERT_OK(Sum(comm));
        GetParam().Of(gang, 0).Hang(GetParam().call);
      },
      UseShortTimeouts);
  EXPECT_EQ(gang.kills(0).size(), 1u);
  gang.ExpectClean();
}

// Nothing failed: a call that is slower than a fault may be is waited for.
TEST_P(CloseFaultTest, WaitsWhenItIsSlow) {
  GpuWorld gang(1);
  std::thread slow;
  gang.Run(
      [&](int, GpuComm& comm) {
        COHORT_ASSERT_OK(comm.Allocate(400));
        COHORT_ASSERT_OK(Sum(comm));
        GetParam().Of(gang, 0).Hang(GetParam().call);
        slow = std::thread([&] {
          EXPECT_TRUE(GetParam().Of(gang, 0).AwaitHang());
          GetParam().Of(gang, 0).Release();
        });
      },
      [](GpuCommOptions& options) {
        options.deadlines.quiet = absl::ZeroDuration();
        options.deadlines.finish = absl::Minutes(10);
      });
  slow.join();
  EXPECT_THAT(gang.kills(0), IsEmpty());
  gang.ExpectClean();
}

TEST_P(CloseFaultTest, ClosesWhenItFails) {
  GpuWorld gang(1);
  gang.Run([&](int, GpuComm& comm) {
    COHORT_ASSERT_OK(comm.Allocate(400));
    COHORT_ASSERT_OK(Sum(comm));
    GetParam().Of(gang, 0).Fail(GetParam().call, 1);
  });
  EXPECT_THAT(gang.kills(0), IsEmpty());
}

}  // namespace
}  // namespace cohort::trainer
