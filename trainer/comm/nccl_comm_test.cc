// What NcclComm does beyond comm_conformance_test: every call of NCCL and CUDA
// fails and hangs on cue, communicators end in every state, versions.  Ranks
// are threads; trainer/comm/testing/gpu_world.h.

#include "trainer/comm/nccl_comm.h"

#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cstddef>
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
#include "common/status_util.h"
#include "common/testing/status_matchers.h"
#include "trainer/comm/testing/gpu_world.h"

namespace cohort::trainer {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ResultOf;

constexpr absl::Duration kLong = absl::Seconds(60);
const auto kUnmet = absl::StatusCode::kFailedPrecondition;
const auto kAborted = absl::StatusCode::kAborted;
const auto kLate = absl::StatusCode::kDeadlineExceeded;

std::string GpuOf(int rank) {
  const std::string byte = absl::StrCat("0", rank + 1);
  return absl::StrCat("GPU-", byte, byte);
}

template <typename Matcher>
auto IsEnd(GpuEnd::Level level, Matcher why) {
  return AllOf(Field(&GpuEnd::level, level), Field(&GpuEnd::why, why));
}

template <size_t kCount = 100>
std::array<float, kCount> Ones() {
  std::array<float, kCount> values;
  values.fill(1.0f);
  return values;
}

absl::Status Sum(Comm& comm, std::span<float> values,
                 absl::Duration deadline = kLong) {
  return comm.AllReduce(Buffer::Of(values), ReduceOp::kSum, deadline);
}

// ---- as it should be

TEST(NcclCommTest, GivesBackAllThatItTook) {
  GpuWorld gang(3);
  gang.Run([](int rank, GpuComm& comm) {
    auto memory = comm.Allocate(4000);
    COHORT_ASSERT_OK(memory);
    EXPECT_TRUE(comm.allocates_on_device());
    EXPECT_THAT(comm.description(),
                AllOf(HasSubstr("NCCL 2.28.9"), HasSubstr(GpuOf(rank))));
    const std::span<float> values(reinterpret_cast<float*>(memory->data()),
                                  1000);
    for (const float value : values) ASSERT_EQ(value, 0.0f);
    values[999] = 1;
    COHORT_ASSERT_OK(Sum(comm, values));
    EXPECT_EQ(values[999], 3.0f);
    std::array<float, 100> host = Ones();
    COHORT_ASSERT_OK(Sum(comm, host));
    EXPECT_EQ(host[99], 3.0f);
  });
  gang.ExpectClean();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(gang.kills(rank), IsEmpty());
    EXPECT_THAT(gang.ends(rank), IsEmpty());
    EXPECT_EQ(gang.nccl(rank).faults().Count("ncclCommFinalize"), 1);
    EXPECT_EQ(gang.nccl(rank).faults().Count("ncclCommAbort"), 0);
    EXPECT_EQ(gang.nccl(rank).faults().threads(), 1u) << "NC-1";
  }
}

// What the driver knows as the device's is not staged.
TEST(NcclCommTest, UsesOthersDeviceMemoryInPlace) {
  GpuWorld gang(2);
  gang.Run([&gang](int rank, GpuComm& comm) {
    cuda::DevicePointer pointer = 0;
    ASSERT_EQ(gang.driver(rank).AllocateDevice(&pointer, 400), cuda::kSuccess);
    auto* const values = reinterpret_cast<float*>(pointer);
    std::fill_n(values, 100, 1.0f);
    COHORT_ASSERT_OK(Sum(comm, std::span(values, 100)));
    EXPECT_EQ(values[42], 2.0f);
    EXPECT_EQ(gang.driver(rank).faults().Count("cuMemcpyAsync"), 0);
    EXPECT_EQ(gang.driver(rank).pinned_bytes(), 0u);
    gang.driver(rank).FreeDevice(pointer);
  });
  gang.ExpectClean();
}

// Steady state: a shape that all agreed on is launched without a word before.
TEST(NcclCommTest, LaunchesWhatIsAgreedBeforeThePeersCome) {
  GpuWorld gang(2);
  std::latch launched(1);
  gang.Run([&](int rank, GpuComm& comm) {
    auto memory = comm.Allocate(400);
    COHORT_ASSERT_OK(memory);
    const std::span<float> values(reinterpret_cast<float*>(memory->data()),
                                  100);
    COHORT_ASSERT_OK(Sum(comm, values));
    if (rank == 1) {
      // Not before the other has launched, which it does alone.
      launched.wait();
    } else {
      std::thread watch([&] {
        gang.AwaitLaunch(0, 2);
        launched.count_down();
      });
      COHORT_ASSERT_OK(Sum(comm, values));
      watch.join();
      return;
    }
    COHORT_ASSERT_OK(Sum(comm, values));
  });
  gang.ExpectClean();
}

struct Version {
  int version;
  bool has_revoke;
};

class NcclVersionTest : public ::testing::TestWithParam<Version> {};

INSTANTIATE_TEST_SUITE_P(
    Versions, NcclVersionTest,
    ::testing::Values(Version{21800, false}, Version{22304, false},
                      Version{22806, false}, Version{22807, true},
                      Version{23007, true}, Version{23203, true}),
    [](const auto& row) { return absl::StrCat("v", row.param.version); });

TEST_P(NcclVersionTest, Reduces) {
  GpuWorld gang(2, GetParam().version);
  gang.Run([](int, GpuComm& comm) {
    auto memory = comm.Allocate(400);
    COHORT_ASSERT_OK(memory);
    const std::span<float> values(reinterpret_cast<float*>(memory->data()),
                                  100);
    values[0] = 1;
    COHORT_ASSERT_OK(Sum(comm, values));
    COHORT_ASSERT_OK(Sum(comm, values));
    EXPECT_EQ(values[0], 4.0f);
  });
  gang.ExpectClean();
}

TEST_P(NcclVersionTest, EndsByTheLevelThatTheVersionHas) {
  GpuWorld gang(2, GetParam().version);
  gang.fabric().Hold();
  gang.Run([&gang](int, GpuComm& comm) {
    std::thread revoker([&] {
      for (int rank = 0; rank < 2; ++rank) gang.AwaitLaunch(rank);
      comm.Revoke();
    });
    std::array<float, 100> values = Ones();
    EXPECT_THAT(Sum(comm, values), StatusIs(kAborted));
    revoker.join();
  });
  const char* const call =
      GetParam().has_revoke ? "ncclCommRevoke" : "ncclCommAbort";
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(gang.nccl(rank).faults().Count(call), 1);
    EXPECT_THAT(gang.kills(rank), IsEmpty());
    EXPECT_THAT(
        gang.ends(rank),
        ElementsAre(IsEnd(
            GetParam().has_revoke ? GpuEnd::Level::kRevoked
                                  : GpuEnd::Level::kAborted,
            AllOf(HasSubstr(GpuOf(rank)), HasSubstr("epoch 2 is revoked")))));
  }
  EXPECT_EQ(gang.nccl(0).faults().Count("ncclCommAbort"),
            GetParam().has_revoke ? 0 : 1);
  gang.ExpectClean();
}

// ---- what ranks bring

TEST(NcclCommTest, TellsAllRanksOfADifferenceThatCameTooLateAndIsOver) {
  GpuWorld gang(3);
  gang.Run([](int rank, GpuComm& comm) {
    std::array<float, 100> values = Ones();
    for (const size_t count : {100, 50}) {
      COHORT_ASSERT_OK(Sum(comm, std::span(values).first(count)));
    }
    // Both agreed on, so both are launched at once.
    EXPECT_THAT(Sum(comm, std::span(values).first(rank == 1 ? 50 : 100)),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("100"), HasSubstr("50"))));
    EXPECT_THAT(comm.Barrier(kLong), StatusIs(kAborted));
  });
  gang.ExpectClean();
}

// A rank that brings something new has not launched; the others have.
TEST(NcclCommTest, IsOverOnAllRanksWhenSomeHadLaunched) {
  GpuWorld gang(3);
  gang.Run([](int rank, GpuComm& comm) {
    std::array<float, 100> values = Ones();
    COHORT_ASSERT_OK(Sum(comm, values));
    EXPECT_THAT(Sum(comm, std::span(values).first(rank == 1 ? 7 : 100)),
                StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(comm.Barrier(kLong), StatusIs(kAborted));
  });
  gang.ExpectClean();
}

TEST(NcclCommTest, SaysWhenTheGpuHasNoMemoryAndGoesOn) {
  GpuWorld gang(2);
  gang.Run([](int rank, GpuComm& comm) {
    EXPECT_THAT(comm.Allocate(size_t{2} << 30),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         AllOf(HasSubstr(GpuOf(rank)),
                               HasSubstr(absl::StrCat("rank ", rank)),
                               HasSubstr("of 1073741824 free"))));
    std::array<float, 100> values = Ones();
    COHORT_EXPECT_OK(Sum(comm, values));
    EXPECT_EQ(values[0], 2.0f);
  });
  gang.ExpectClean();
}

TEST(NcclCommTest, NamesTheRankThatHasNoMemoryToStage) {
  GpuWorld gang(2);
  gang.Run([&gang](int rank, GpuComm& comm) {
    std::array<float, 100> values = Ones();
    if (rank == 1) {
      gang.driver(1).faults().Fail("cuMemHostAlloc", cuda::kOutOfMemory);
    }
    EXPECT_THAT(Sum(comm, values),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         HasSubstr(rank == 0 ? "rank 1 has no memory"
                                             : "cuMemHostAlloc")));
    EXPECT_EQ(values[0], 1.0f);
    COHORT_EXPECT_OK(Sum(comm, values)) << "still usable";
  });
  gang.ExpectClean();
}

// What was agreed on is launched at once on those that can.
TEST(NcclCommTest, IsOverWhenOneHasNoMemoryToStageWhatOthersHaveLaunched) {
  GpuWorld gang(3);
  gang.Run([&gang](int rank, GpuComm& comm) {
    auto memory = comm.Allocate(400);
    COHORT_ASSERT_OK(memory);
    const std::span<float> values(reinterpret_cast<float*>(memory->data()),
                                  100);
    COHORT_ASSERT_OK(Sum(comm, values));
    std::array<float, 100> host = Ones();
    if (rank == 1) {
      gang.driver(1).faults().Fail("cuMemHostAlloc", cuda::kOutOfMemory);
    }
    EXPECT_THAT(Sum(comm, host),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         HasSubstr(rank == 1 ? "cuMemHostAlloc"
                                             : "rank 1 has no memory")));
    EXPECT_EQ(host[0], 1.0f) << "NC-6";
    EXPECT_THAT(comm.Barrier(kLong), StatusIs(kAborted));
  });
  gang.ExpectClean();
}

// ---- which ranks can use NCCL

TEST(NcclCommTest, TellsAllRanksWhatOneLacksAndLeavesTheHostsUsable) {
  GpuWorld gang(3);
  RunRanks(3, [&gang](int rank) {
    GpuCommOptions options = gang.Options(rank);
    if (rank == 1) options.driver = absl::FailedPreconditionError("no libcuda");
    EXPECT_THAT(
        gang.Join(rank, std::move(options)),
        AllOf(
            StatusIs(kUnmet, "rank 1: no libcuda"),
            ResultOf([](const auto& comm) { return GetReason(comm.status()); },
                     kGpusUnusable)));
  });
  gang.ExpectClean();
}

TEST(NcclCommTest, RefusesDifferentVersions) {
  GpuWorld gang(2);
  nccl::FakeNccl older(gang.fabric(), 22203);
  RunRanks(2, [&](int rank) {
    GpuCommOptions options = gang.Options(rank);
    if (rank == 1) options.nccl = nccl::MakeLibrary(older.table(), "older");
    EXPECT_THAT(gang.Join(rank, std::move(options)),
                StatusIs(kUnmet, AllOf(HasSubstr("2.28.9"),
                                       HasSubstr("rank 1 2.22.3"))));
  });
}

// As of a rank that the worker daemon gave no GPU.
TEST(NcclCommTest, SaysThatNoGpuWasGranted) {
  const char* const before = getenv("CUDA_VISIBLE_DEVICES");
  const std::string kept = before != nullptr ? before : "";
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  GpuWorld gang(1);
  EXPECT_THAT(gang.Join(0, GpuOfThisMachine()),
              StatusIs(kUnmet, HasSubstr("rank 0: no GPU was granted")));
  if (before == nullptr) {
    unsetenv("CUDA_VISIBLE_DEVICES");
  } else {
    setenv("CUDA_VISIBLE_DEVICES", kept.c_str(), 1);
  }
}

TEST(GpuOfThisMachineTest, TakesTheGpuThatTheRankWasGranted) {
  setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b", 1);
  setenv("COHORT_GPU_IDS", "GPU-b", 1);
  EXPECT_EQ(GpuOfThisMachine().device, 1);
  unsetenv("COHORT_GPU_IDS");
  EXPECT_EQ(GpuOfThisMachine().device, 0);
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(NcclCommTest, SaysThatThereIsNoSuchGpu) {
  GpuWorld gang(1);
  GpuCommOptions options = gang.Options(0);
  options.device = 4;
  EXPECT_THAT(gang.Join(0, std::move(options)),
              StatusIs(kUnmet, HasSubstr("rank 0: no GPU 4: 1 visible")));
}

// ---- NCCL's own errors

TEST(NcclCommTest, AbortsAllRanksOnAnErrorInTheBackground) {
  GpuWorld gang(3);
  gang.fabric().Hold();
  gang.Run([&gang](int rank, GpuComm& comm) {
    std::array<float, 100> values = Ones();
    std::thread failure;
    if (rank == 1) {
      failure = std::thread([&] {
        gang.AwaitLaunch(1);
        gang.nccl(1).FailInBackground(nccl::kRemoteError);
      });
    }
    const absl::Status done = Sum(comm, values);
    EXPECT_THAT(done, StatusIs(kAborted));
    if (rank == 1) {
      EXPECT_THAT(std::string(done.message()),
                  AllOf(HasSubstr("remote process exited"),
                        HasSubstr("rank 1 on GPU-02")));
      failure.join();
    }
    EXPECT_EQ(values[0], 1.0f) << "NC-6";
  });
  gang.ExpectClean();
}

// ---- revoke in every state

// How long Revoke may take to end a call: CM-1.
constexpr absl::Duration kSoon = absl::Milliseconds(100);

TEST(NcclRevokeTest, EndsWhatStillConnects) {
  GpuWorld gang(3);
  std::latch refused(2);
  RunRanks(3, [&](int rank) {
    if (rank == 2) {
      // It says that it will come, and does not.
      auto host = gang.Host(2);
      COHORT_ASSERT_OK(host);
      Exchange exchange = gang.exchange().For(2);
      GpuCommOptions options = gang.Options(2);
      gang.nccl(2).faults().Hang("ncclCommInitRankConfig");
      std::thread revoker([&] {
        gang.nccl(2).faults().AwaitHang();
        while (gang.nccl(0).faults().Count("ncclCommGetAsyncError") == 0 ||
               gang.nccl(1).faults().Count("ncclCommGetAsyncError") == 0) {
          std::this_thread::yield();
        }
        (*host)->Revoke();
        refused.wait();
        gang.nccl(2).faults().Release();
      });
      const auto comm = ConnectGpuComm(std::move(options), **host, exchange);
      // Where it came up in the grace that a gone peer gets, its first call
      // says so.
      EXPECT_THAT(comm.ok() ? (*comm)->Barrier(kLong) : comm.status(),
                  StatusIs(kAborted));
      revoker.join();
      return;
    }
    EXPECT_THAT(gang.Join(rank), StatusIs(kAborted, HasSubstr("epoch 2")));
    // Nothing else is allowed before it is up.
    EXPECT_EQ(gang.nccl(rank).faults().Count("ncclCommAbort"), 1);
    EXPECT_EQ(gang.nccl(rank).faults().Count("ncclCommRevoke"), 0);
    refused.count_down();
  });
  gang.ExpectClean();
}

TEST(NcclRevokeTest, EndsAnIdleCommunicator) {
  GpuWorld gang(2);
  gang.Run([](int, GpuComm& comm) {
    COHORT_ASSERT_OK(comm.Barrier(kLong));
    comm.Revoke();
    std::array<float, 100> values = Ones();
    EXPECT_THAT(Sum(comm, values), StatusIs(kAborted, HasSubstr("epoch 2")));
    EXPECT_THAT(comm.CheckPeers(), StatusIs(kAborted));
    EXPECT_THAT(comm.Allocate(10), StatusIs(kAborted));
  });
  gang.ExpectClean();
}

// The others are stopped: they never come to the collective.
TEST(NcclRevokeTest, EndsAWaitForPeersThatAreStopped) {
  GpuWorld gang(3);
  std::latch over(1);
  gang.Run([&](int rank, GpuComm& comm) {
    std::array<float, 100> values = Ones();
    COHORT_ASSERT_OK(Sum(comm, values));
    if (rank != 0) {
      over.wait();
      return;
    }
    absl::Duration revoked_at;
    std::thread revoker([&] {
      gang.AwaitLaunch(0, 2);
      revoked_at = MonotonicNow();
      comm.Revoke();
    });
    EXPECT_THAT(Sum(comm, values), StatusIs(kAborted));
    const absl::Duration ended_at = MonotonicNow();
    revoker.join();
    EXPECT_LT(ended_at - revoked_at, 10 * kSoon) << "with room for a busy CPU";
    over.count_down();
  });
  gang.ExpectClean();
}

// All came, and the GPU of one hangs: every rank is in its collective.
TEST(NcclRevokeTest, EndsACollectiveInWhichTheGpuHangs) {
  GpuWorld gang(2);
  gang.fabric().Hold();
  gang.Run([&](int rank, GpuComm& comm) {
    std::array<float, 100> values = Ones();
    std::thread revoker;
    if (rank == 0) {
      revoker = std::thread([&] {
        for (int each = 0; each < 2; ++each) gang.AwaitLaunch(each);
        comm.Revoke();
      });
    }
    EXPECT_THAT(Sum(comm, values), StatusIs(kAborted)) << rank;
    if (rank == 0) revoker.join();
  });
  for (int rank = 0; rank < 2; ++rank) EXPECT_THAT(gang.kills(rank), IsEmpty());
  gang.ExpectClean();
}

// The process of a rank ends while all are in the collective.
TEST(NcclRevokeTest, EndsACollectiveWhosePeerDied) {
  GpuWorld gang(2);
  gang.fabric().Hold();
  RunRanks(2, [&](int rank) {
    if (rank == 1) {
      std::thread killer;
      {
        auto comm = gang.Join(1);
        COHORT_ASSERT_OK(comm);
        killer = std::thread([&] {
          gang.AwaitLaunch(1);
          (*comm)->Revoke();
        });
        std::array<float, 100> values = Ones();
        EXPECT_FALSE(Sum(**comm, values).ok());
        killer.join();
      }
      gang.Leave(1);
      return;
    }
    auto comm = gang.Join(0);
    COHORT_ASSERT_OK(comm);
    std::array<float, 100> values = Ones();
    EXPECT_THAT(Sum(**comm, values), StatusIs(kAborted));
  });
  gang.ExpectClean();
}

TEST(NcclRevokeTest, AbortsWhereARevokeFails) {
  GpuWorld gang(1);
  gang.nccl(0).faults().Fail("ncclCommRevoke", nccl::kInternalError);
  gang.Run([](int, GpuComm& comm) { comm.Revoke(); });
  EXPECT_EQ(gang.nccl(0).faults().Count("ncclCommAbort"), 1);
  EXPECT_THAT(gang.kills(0), IsEmpty());
  EXPECT_THAT(gang.ends(0),
              ElementsAre(IsEnd(GpuEnd::Level::kAborted,
                                AllOf(HasSubstr("epoch 2 is revoked"),
                                      HasSubstr("ncclCommRevoke")))));
  gang.ExpectClean();
}

TEST(NcclRevokeTest, AbortsWhereARevokeIsLate) {
  GpuWorld gang(1);
  gang.Run(
      [&gang](int, GpuComm& comm) {
        // It never becomes quiet.
        gang.nccl(0).FailInBackground(nccl::kInProgress);
        comm.Revoke();
      },
      UseShortTimeouts);
  EXPECT_EQ(gang.nccl(0).faults().Count("ncclCommRevoke"), 1);
  EXPECT_EQ(gang.nccl(0).faults().Count("ncclCommAbort"), 1);
  EXPECT_THAT(gang.kills(0), IsEmpty());
  gang.ExpectClean();
}

TEST(NcclDeadlinesTest, GiveEachLevelLongerThanNcclLooksAway) {
  const NcclDeadlines deadlines;
  EXPECT_GT(deadlines.revoke, kNcclPoll);
  // An abort joins the proxy's threads one after the other.
  EXPECT_GE(deadlines.quiet - deadlines.revoke, 4 * kNcclPoll);
}

// The last level; calls have long ended by then.
TEST(NcclRevokeTest, AsksToKillWhereRevokeOrAbortHangs) {
  for (const auto& [call, version] : {std::pair("ncclCommRevoke", 22809),
                                      std::pair("ncclCommAbort", 22203)}) {
    GpuWorld gang(1, version);
    gang.nccl(0).faults().Hang(call);
    gang.Run(
        [&gang](int, GpuComm& comm) {
          comm.Revoke();
          // Until it is killed it hangs: neither Revoke nor calls wait for it.
          EXPECT_TRUE(gang.nccl(0).faults().AwaitHang());
          EXPECT_THAT(comm.Barrier(kLong), StatusIs(kAborted));
        },
        UseShortTimeouts);
    EXPECT_THAT(gang.kills(0), Contains(HasSubstr(call)));
    EXPECT_THAT(gang.ends(0),
                Contains(IsEnd(GpuEnd::Level::kKilled, HasSubstr(call))));
    gang.ExpectClean();
  }
}

// ---- the real one

// NCCL itself, where there is one and no GPU: it takes our config, gives an id,
// and fails as it says.  On a machine with a GPU it would work.
TEST(NcclCommTest, TellsWhatTheRealNcclSaysWithoutAGpu) {
  const auto real = nccl::LoadLibrary();
  if (!real.ok()) GTEST_SKIP() << real.status();
  if (cuda::LoadDriver().ok()) GTEST_SKIP() << "there is a driver";
  GpuWorld gang(1);
  GpuCommOptions options = gang.Options(0);
  options.nccl = real;
  const auto comm = gang.Join(0, std::move(options));
  EXPECT_THAT(comm, StatusIs(absl::StatusCode::kUnavailable,
                             AllOf(HasSubstr("ncclCommInitRankConfig"),
                                   HasSubstr(GpuOf(0)))));
  EXPECT_THAT(gang.kills(0), IsEmpty());
}

// ---- deadlines

TEST(NcclCommTest, SaysThatAllRanksCameWhenTheGpuIsLate) {
  GpuWorld gang(2);
  gang.fabric().Hold();
  gang.Run([](int rank, GpuComm& comm) {
    std::array<float, 100> values = Ones();
    EXPECT_THAT(Sum(comm, values, absl::Milliseconds(150)),
                StatusIs(kLate, AllOf(HasSubstr("AllReduce #1 (sum)"),
                                      HasSubstr(absl::StrCat("rank ", rank)),
                                      HasSubstr("150ms"),
                                      HasSubstr("all ranks came"))));
    EXPECT_EQ(values[0], 1.0f) << "NC-6";
  });
  gang.ExpectClean();
}

TEST(NcclCommTest, TakesWhatIsLateButInTime) {
  GpuWorld gang(2);
  gang.fabric().Hold();
  gang.Run([&gang](int rank, GpuComm& comm) {
    std::array<float, 100> values = Ones();
    std::thread release;
    if (rank == 0) {
      release = std::thread([&] {
        while (gang.driver(0).faults().Count("cuEventQuery") < 300) {
          std::this_thread::yield();
        }
        gang.fabric().Resume();
      });
    }
    COHORT_EXPECT_OK(Sum(comm, values));
    EXPECT_EQ(values[99], 2.0f);
    if (rank == 0) release.join();
  });
  gang.ExpectClean();
}

}  // namespace
}  // namespace cohort::trainer
