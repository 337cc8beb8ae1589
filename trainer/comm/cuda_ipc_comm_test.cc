// What CudaIpcComm does beyond comm_conformance_test: whose memory is whose,
// every call that fails or hangs on cue, ranks that are gone.  Ranks are
// threads; trainer/comm/testing/gpu_world.h.

#include "trainer/comm/cuda_ipc_comm.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <latch>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/real_clock.h"
#include "common/testing/status_matchers.h"
#include "trainer/comm/testing/gpu_world.h"

namespace cohort::trainer {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kLong = absl::Seconds(60);
const auto kAborted = absl::StatusCode::kAborted;

std::span<float> Floats(std::span<std::byte> memory) {
  return {reinterpret_cast<float*>(memory.data()),
          memory.size() / sizeof(float)};
}

absl::Status Sum(Comm& comm, std::span<float> values,
                 absl::Duration deadline = kLong) {
  return comm.AllReduce(Buffer::Of(values), ReduceOp::kSum, deadline);
}

const std::vector<int> kOneGpu = {0, 0, 0};

// ---- as it should be

TEST(CudaIpcCommTest, ReducesInPlaceAndGivesBackAllThatItTook) {
  GpuWorld gang(kOneGpu);
  gang.Run([&gang](int rank, GpuComm& comm) {
    EXPECT_THAT(comm.description(),
                AllOf(HasSubstr("CUDA IPC among 3 rank(s) on GPU-0101"),
                      ::testing::Not(HasSubstr("NCCL"))));
    const auto memory = comm.Allocate(4000);
    COHORT_ASSERT_OK(memory);
    const std::span<float> values = Floats(*memory);
    for (const float value : values) ASSERT_EQ(value, 0.0f);
    values[999] = static_cast<float>(rank + 1);
    COHORT_ASSERT_OK(Sum(comm, values.subspan(1)));
    EXPECT_EQ(values[999], 6.0f);
    EXPECT_EQ(gang.driver(rank).faults().Count("cuMemcpyAsync"), 0);
    EXPECT_EQ(gang.driver(rank).pinned_bytes(), 0u);
  });
  gang.ExpectClean();
  int launches = 0;
  for (int rank = 0; rank < 3; ++rank) {
    launches += gang.driver(rank).faults().Count("cuLaunchKernel");
    EXPECT_EQ(gang.driver(rank).faults().threads(), 1u) << "NC-1";
    EXPECT_EQ(gang.nccl(rank).faults().Count("ncclCommInitRankConfig"), 0);
    EXPECT_THAT(gang.kills(rank), IsEmpty());
  }
  EXPECT_EQ(launches, 1) << "one rank's kernel serves all";
}

TEST(CudaIpcCommTest, LetsEachRankTakeItsTurnToLead) {
  GpuWorld gang(kOneGpu);
  gang.Run([](int, GpuComm& comm) {
    const auto memory = comm.Allocate(400);
    COHORT_ASSERT_OK(memory);
    for (int i = 0; i < 6; ++i) COHORT_ASSERT_OK(Sum(comm, Floats(*memory)));
  });
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(gang.driver(rank).faults().Count("cuLaunchKernel"), 2);
    // Each peer's region, once.
    EXPECT_EQ(gang.driver(rank).faults().Count("cuIpcOpenMemHandle"), 2);
  }
  gang.ExpectClean();
}

TEST(CudaIpcCommTest, DoesWithoutNcclOnOneGpu) {
  GpuWorld gang(kOneGpu);
  RunRanks(3, [&](int rank) {
    GpuCommOptions options = gang.Options(rank);
    options.nccl = absl::FailedPreconditionError("no libnccl.so.2");
    const auto comm = gang.Join(rank, std::move(options));
    COHORT_ASSERT_OK(comm);
    std::array<float, 100> values = {1.0f};
    COHORT_ASSERT_OK(Sum(**comm, values));
    EXPECT_EQ(values[0], 3.0f);
  });
  gang.ExpectClean();
}

// Ranks allocate as they like: peers learn of regions when a call names them.
TEST(CudaIpcCommTest, UsesRegionsThatOnlySomeRanksHave) {
  GpuWorld gang(std::vector<int>{0, 0});
  gang.Run([](int rank, GpuComm& comm) {
    std::vector<std::span<std::byte>> memory;
    for (int i = 0; i < (rank == 0 ? 1 : 20); ++i) {
      const auto region = comm.Allocate(400);
      COHORT_ASSERT_OK(region);
      memory.push_back(*region);
    }
    for (const std::span<std::byte> mine : {memory.front(), memory.back()}) {
      std::ranges::fill(Floats(mine), 1.0f);
      COHORT_ASSERT_OK(Sum(comm, Floats(mine)));
      EXPECT_EQ(Floats(mine)[0], 2.0f);
    }
  });
  gang.ExpectClean();
}

TEST(CudaIpcCommTest, StagesMemoryOfTheHostAndOthersOfTheGpu) {
  GpuWorld gang(kOneGpu);
  gang.Run([&gang](int rank, GpuComm& comm) {
    cuda::DevicePointer pointer = 0;
    ASSERT_EQ(gang.driver(rank).AllocateDevice(&pointer, 400), cuda::kSuccess);
    const std::span<float> device(
        reinterpret_cast<float*>(static_cast<uintptr_t>(pointer)), 100);
    const auto memory = comm.Allocate(400);
    COHORT_ASSERT_OK(memory);
    // Twice, the second time with a larger stage.
    for (const size_t count : {10, 3000}) {
      std::vector<float> host(count, 1.0f);
      std::ranges::fill(device, 2.0f);
      std::ranges::fill(Floats(*memory), 3.0f);
      const Buffer buffers[] = {Buffer::Of(device), Buffer::Of(std::span(host)),
                                Buffer::Of(std::span<float>()),
                                Buffer::Of(Floats(*memory))};
      COHORT_ASSERT_OK(comm.AllReduce(buffers, ReduceOp::kSum, kLong));
      EXPECT_EQ(device[99], 6.0f);
      EXPECT_EQ(host[count - 1], 3.0f);
      EXPECT_EQ(Floats(*memory)[99], 9.0f);
    }
    gang.driver(rank).FreeDevice(pointer);
  });
  gang.ExpectClean();
}

// ---- what ranks bring

TEST(CudaIpcCommTest, LeavesBuffersAndCommunicatorAloneWhenRanksDiffer) {
  GpuWorld gang(kOneGpu);
  gang.Run([](int rank, GpuComm& comm) {
    const auto memory = comm.Allocate(400);
    COHORT_ASSERT_OK(memory);
    const std::span<float> values = Floats(*memory);
    std::ranges::fill(values, 1.0f);
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(Sum(comm, values.first(rank == 2 ? 50 : 100)),
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           AllOf(HasSubstr("50"), HasSubstr("100"))));
      EXPECT_EQ(values[0], 1.0f);
    }
    COHORT_ASSERT_OK(Sum(comm, values));
    EXPECT_EQ(values[0], 3.0f);
  });
  gang.ExpectClean();
}

TEST(CudaIpcCommTest, NamesTheRankThatHasNoMemoryToStageAndGoesOn) {
  GpuWorld gang(kOneGpu);
  gang.Run([&gang](int rank, GpuComm& comm) {
    EXPECT_THAT(comm.Allocate(size_t{2} << 30),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         HasSubstr(absl::StrCat("rank ", rank))));
    std::array<float, 100> values = {1.0f};
    if (rank == 1) {
      gang.driver(1).faults().Fail("cuMemHostAlloc", cuda::kOutOfMemory);
    }
    EXPECT_THAT(Sum(comm, values),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         HasSubstr(rank == 1 ? "cuMemHostAlloc"
                                             : "rank 1 has no memory")));
    EXPECT_EQ(values[0], 1.0f);
    COHORT_ASSERT_OK(Sum(comm, values));
    EXPECT_EQ(values[0], 3.0f);
  });
  gang.ExpectClean();
}

// ---- ranks that come late, or are gone

TEST(CudaIpcCommTest, NamesTheRankThatDoesNotCome) {
  GpuWorld gang(kOneGpu);
  std::latch over(2);
  gang.Run([&](int rank, GpuComm& comm) {
    if (rank == 1) {
      over.wait();
      return;
    }
    std::array<float, 100> values = {};
    EXPECT_THAT(Sum(comm, values, absl::Milliseconds(200)),
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         AllOf(HasSubstr("AllReduce"), HasSubstr("200ms"),
                               HasSubstr("1"))));
    EXPECT_THAT(comm.Barrier(kLong), StatusIs(kAborted));
    over.count_down();
  });
  gang.ExpectClean();
}

TEST(CudaIpcCommTest, EndsAllRanksWhenOneRevokes) {
  GpuWorld gang(kOneGpu);
  gang.Run([](int rank, GpuComm& comm) {
    if (rank == 2) {
      comm.Revoke();
      return;
    }
    std::array<float, 100> values = {};
    const absl::Duration begin = MonotonicNow();
    EXPECT_THAT(Sum(comm, values), StatusIs(kAborted));
    EXPECT_LT(MonotonicNow() - begin, absl::Seconds(10));
  });
  gang.ExpectClean();
}

// Survivors keep working memory until they end themselves.
TEST(CudaIpcCommTest, FreesNothingThatPeersMayHaveOpen) {
  GpuWorld gang(std::vector<int>{0, 0});
  std::latch reduced(2);
  std::latch gone(1);
  gang.Run([&](int rank, GpuComm& comm) {
    const auto memory = comm.Allocate(400);
    COHORT_ASSERT_OK(memory);
    for (int i = 0; i < 2; ++i) COHORT_ASSERT_OK(Sum(comm, Floats(*memory)));
    reduced.arrive_and_wait();
    if (rank == 0) {
      comm.Revoke();
      gone.count_down();
      return;
    }
    gone.wait();
    EXPECT_THAT(Sum(comm, Floats(*memory)), StatusIs(kAborted));
  });
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(gang.driver(rank).faults().Count("cuMemFree"), 0);
  }
  gang.ExpectClean();
}

// ---- faults

struct Fault {
  const char* call;

  cuda::CallFaults& Of(GpuWorld& gang, int rank) const {
    return gang.driver(rank).faults();
  }
};

std::string FaultName(const ::testing::TestParamInfo<Fault>& info) {
  return info.param.call;
}

// What rank 1 calls.
class CudaIpcFaultTest : public ::testing::TestWithParam<Fault> {
 protected:
  static absl::Status Work(GpuComm& comm, absl::Duration deadline) {
    const auto memory = comm.Allocate(4000);
    if (!memory.ok()) return memory.status();
    std::array<float, 100> values = {};
    // Of three ranks each leads a sum and a broadcast.
    for (int i = 0; i < 3; ++i) {
      const absl::Status summed = Sum(comm, values, deadline);
      if (!summed.ok()) return summed;
      const absl::Status sent =
          comm.Broadcast(Buffer::Of(Floats(*memory)), 2, deadline);
      if (!sent.ok()) return sent;
    }
    return absl::OkStatus();
  }
};

INSTANTIATE_TEST_SUITE_P(
    Calls, CudaIpcFaultTest,
    ::testing::Values(Fault{"cuIpcGetMemHandle"}, Fault{"cuIpcOpenMemHandle"},
                      Fault{"cuModuleGetFunction"}, Fault{"cuLaunchKernel"},
                      Fault{"cuMemcpyAsync"}, Fault{"cuEventRecord"},
                      Fault{"cuEventQuery"}, Fault{"cuMemsetD8Async"}),
    FaultName);

TEST_P(CudaIpcFaultTest, AbortsAllRanksWhenItFails) {
  GpuWorld gang(kOneGpu);
  std::latch connected(3);
  gang.Run([&](int rank, GpuComm& comm) {
    connected.arrive_and_wait();
    if (rank == 1) {
      GetParam().Of(gang, 1).Fail(GetParam().call, cuda::kIllegalAddress);
    }
    const absl::Status done = Work(comm, kLong);
    EXPECT_THAT(done, StatusIs(kAborted));
    if (rank == 1) {
      EXPECT_THAT(
          std::string(done.message()),
          AllOf(HasSubstr("rank 1 on GPU-01"), HasSubstr(GetParam().call)));
    }
    EXPECT_THAT(comm.Barrier(kLong), StatusIs(kAborted));
  });
  gang.ExpectClean();
}

TEST_P(CudaIpcFaultTest, LeavesTheCallerByItsDeadlineAndAsksToKill) {
  GpuWorld gang(kOneGpu);
  std::latch connected(3);
  gang.Run(
      [&](int rank, GpuComm& comm) {
        connected.arrive_and_wait();
        if (rank == 1) GetParam().Of(gang, 1).Hang(GetParam().call);
        const absl::Duration begin = MonotonicNow();
        EXPECT_FALSE(Work(comm, absl::Milliseconds(300)).ok());
        EXPECT_LT(MonotonicNow() - begin, absl::Seconds(10));
      },
      UseShortTimeouts);
  EXPECT_THAT(gang.kills(1), Contains(HasSubstr(GetParam().call)));
  gang.ExpectClean();
}

// What is called while ranks connect and while they leave.
TEST(CudaIpcCommTest, EndsWhereTheKernelsAreNeverLoaded) {
  GpuWorld gang(kOneGpu);
  gang.driver(1).faults().Hang("cuModuleLoadData");
  RunRanks(3, [&](int rank) {
    GpuCommOptions options = gang.Options(rank);
    UseShortTimeouts(options);
    options.connect_deadline = absl::Milliseconds(300);
    EXPECT_FALSE(gang.Join(rank, std::move(options)).ok());
  });
  EXPECT_THAT(gang.kills(1), Contains(AllOf(HasSubstr("rank 1 on GPU-01"),
                                            HasSubstr("cuModuleLoadData"))));
  gang.ExpectClean();
}

class CudaIpcLeaveTest : public ::testing::TestWithParam<Fault> {};

INSTANTIATE_TEST_SUITE_P(Calls, CudaIpcLeaveTest,
                         ::testing::Values(Fault{"cuIpcCloseMemHandle"},
                                           Fault{"cuMemFree"},
                                           Fault{"cuModuleUnload"}),
                         FaultName);

TEST_P(CudaIpcLeaveTest, AsksToKillWhatHangs) {
  GpuWorld gang(kOneGpu);
  std::latch done(3);
  gang.Run(
      [&](int rank, GpuComm& comm) {
        COHORT_ASSERT_OK(comm.Allocate(4000));
        std::array<float, 100> values = {};
        // Each leads once, and has the others' memory open then.
        for (int i = 0; i < 3; ++i) COHORT_ASSERT_OK(Sum(comm, values));
        if (rank == 1) GetParam().Of(gang, 1).Hang(GetParam().call);
        done.arrive_and_wait();
      },
      UseShortTimeouts);
  EXPECT_THAT(gang.kills(1), Contains(HasSubstr(GetParam().call)));
  gang.ExpectClean();
}

TEST_P(CudaIpcLeaveTest, WaitsForWhatIsSlow) {
  GpuWorld gang(kOneGpu);
  std::latch done(3);
  std::thread slow;
  gang.Run(
      [&](int rank, GpuComm& comm) {
        COHORT_ASSERT_OK(comm.Allocate(4000));
        std::array<float, 100> values = {};
        for (int i = 0; i < 3; ++i) COHORT_ASSERT_OK(Sum(comm, values));
        if (rank == 1) {
          GetParam().Of(gang, 1).Hang(GetParam().call);
          slow = std::thread([&] {
            EXPECT_TRUE(GetParam().Of(gang, 1).AwaitHang());
            GetParam().Of(gang, 1).Release();
          });
        }
        done.arrive_and_wait();
      },
      [](GpuCommOptions& options) {
        options.deadlines.quiet = absl::ZeroDuration();
        options.deadlines.finish = absl::Minutes(10);
      });
  slow.join();
  for (int rank = 0; rank < 3; ++rank) EXPECT_THAT(gang.kills(rank), IsEmpty());
  gang.ExpectClean();
}

TEST(CudaIpcCommTest, FailsOnAllRanksWhenOneCannotLoadTheKernels) {
  GpuWorld gang(kOneGpu);
  gang.driver(1).faults().Fail("cuModuleLoadData", cuda::kInvalidValue);
  RunRanks(3, [&](int rank) {
    const auto comm = gang.Join(rank);
    ASSERT_FALSE(comm.ok());
    if (rank == 1) {
      EXPECT_THAT(
          std::string(comm.status().message()),
          AllOf(HasSubstr("rank 1 on GPU-01"), HasSubstr("cuModuleLoadData")));
    } else {
      EXPECT_THAT(comm, StatusIs(kAborted));
    }
  });
  gang.ExpectClean();
}

}  // namespace
}  // namespace cohort::trainer
