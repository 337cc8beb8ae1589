// What NcclComm does beyond comm_conformance_test: every call of NCCL and CUDA
// fails and hangs on cue, communicators end in every state, versions.  Ranks
// are threads; trainer/comm/testing/nccl_world.h.

#include "trainer/comm/nccl_comm.h"

#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <latch>
#include <memory>
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
#include "common/status_util.h"
#include "common/testing/status_matchers.h"
#include "trainer/comm/testing/nccl_world.h"

namespace cohort::trainer {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ResultOf;

constexpr absl::Duration kLong = absl::Seconds(60);
const auto kUnmet = absl::StatusCode::kFailedPrecondition;
const auto kAborted = absl::StatusCode::kAborted;
const auto kLate = absl::StatusCode::kDeadlineExceeded;

absl::Duration Now() { return MachineClock().Monotonic(); }

std::string GpuOf(int rank) {
  const std::string byte = absl::StrCat("0", rank + 1);
  return absl::StrCat("GPU-", byte, byte);
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

// Returns when `rank` has launched `times` operations.
void AwaitLaunch(NcclWorld& gang, int rank, int times = 1) {
  while (gang.nccl(rank).faults().Count("ncclGroupEnd") < times) {
    std::this_thread::yield();
  }
}

// Whatever happened: one thread made all calls, none was forbidden, and nothing
// is held any more.
void ExpectClean(NcclWorld& gang) {
  for (int rank = 0; rank < gang.size(); ++rank) {
    SCOPED_TRACE(absl::StrCat("rank ", rank));
    cuda::FakeDriver& driver = gang.driver(rank);
    EXPECT_EQ(driver.device_bytes(), 0u);
    EXPECT_EQ(driver.pinned_bytes(), 0u);
    EXPECT_EQ(driver.streams(), 0);
    EXPECT_EQ(driver.events(), 0);
    EXPECT_EQ(driver.contexts(), 0);
    EXPECT_LE(driver.faults().threads(), 1u) << "NC-1";
    EXPECT_EQ(gang.nccl(rank).communicators(), 0u);
    EXPECT_EQ(gang.nccl(rank).misuses(), 0);
  }
}

// Runs `body` on each rank of a connected gang of `gang.size()`.
void RunGang(NcclWorld& gang, const std::function<void(int, NcclComm&)>& body,
             const std::function<void(NcclCommOptions&)>& change = nullptr) {
  RunRanks(gang.size(), [&](int rank) {
    NcclCommOptions options = gang.Options(rank);
    if (change) change(options);
    auto comm = gang.Join(rank, std::move(options));
    COHORT_ASSERT_OK(comm);
    body(rank, **comm);
  });
}

void Impatient(NcclCommOptions& options) {
  options.deadlines.quiet = absl::Milliseconds(200);
  options.deadlines.revoke = absl::Milliseconds(100);
  options.deadlines.finish = absl::Milliseconds(200);
  options.deadlines.memory = absl::Milliseconds(200);
}

// ---- as it should be

TEST(NcclCommTest, GivesBackAllThatItTook) {
  NcclWorld gang(3);
  RunGang(gang, [](int rank, NcclComm& comm) {
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
  ExpectClean(gang);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(gang.kills(rank), IsEmpty());
    EXPECT_EQ(gang.nccl(rank).faults().Count("ncclCommFinalize"), 1);
    EXPECT_EQ(gang.nccl(rank).faults().Count("ncclCommAbort"), 0);
    EXPECT_EQ(gang.nccl(rank).faults().threads(), 1u) << "NC-1";
  }
}

// What the driver knows as the device's is not staged.
TEST(NcclCommTest, UsesOthersDeviceMemoryInPlace) {
  NcclWorld gang(2);
  RunGang(gang, [&gang](int rank, NcclComm& comm) {
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
  ExpectClean(gang);
}

// Steady state: a shape that all agreed on is launched without a word before.
TEST(NcclCommTest, LaunchesWhatIsAgreedBeforeThePeersCome) {
  NcclWorld gang(2);
  std::latch launched(1);
  RunGang(gang, [&](int rank, NcclComm& comm) {
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
        AwaitLaunch(gang, 0, 2);
        launched.count_down();
      });
      COHORT_ASSERT_OK(Sum(comm, values));
      watch.join();
      return;
    }
    COHORT_ASSERT_OK(Sum(comm, values));
  });
  ExpectClean(gang);
}

struct Version {
  int version;
  bool has_windows;
  bool has_revoke;
};

class NcclVersionTest : public ::testing::TestWithParam<Version> {};

INSTANTIATE_TEST_SUITE_P(
    Versions, NcclVersionTest,
    ::testing::Values(Version{21800, false, false},
                      Version{21903, false, false},
                      Version{22304, false, false}, Version{22700, true, false},
                      Version{22806, true, false}, Version{22807, true, true},
                      Version{23007, true, true}, Version{23203, true, true}),
    [](const auto& row) { return absl::StrCat("v", row.param.version); });

TEST_P(NcclVersionTest, ReducesAndRegistersWhatTheVersionCan) {
  NcclWorld gang(2, GetParam().version);
  RunGang(gang, [&gang](int rank, NcclComm& comm) {
    auto memory = comm.Allocate(400);
    COHORT_ASSERT_OK(memory);
    const std::span<float> values(reinterpret_cast<float*>(memory->data()),
                                  100);
    values[0] = 1;
    COHORT_ASSERT_OK(Sum(comm, values));
    COHORT_ASSERT_OK(Sum(comm, values));
    EXPECT_EQ(values[0], 4.0f);
    EXPECT_EQ(gang.nccl(rank).windows(), GetParam().has_windows ? 1 : 0);
  });
  ExpectClean(gang);
  EXPECT_EQ(gang.nccl(0).windows(), 0);
}

TEST_P(NcclVersionTest, EndsByTheRungThatTheVersionHas) {
  NcclWorld gang(2, GetParam().version);
  gang.fabric().Hold();
  RunGang(gang, [&gang](int, NcclComm& comm) {
    std::thread revoker([&] {
      for (int rank = 0; rank < 2; ++rank) AwaitLaunch(gang, rank);
      comm.Revoke();
    });
    std::array<float, 100> values = Ones();
    EXPECT_THAT(Sum(comm, values), StatusIs(kAborted));
    revoker.join();
  });
  const char* const rung =
      GetParam().has_revoke ? "ncclCommRevoke" : "ncclCommAbort";
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(gang.nccl(rank).faults().Count(rung), 1);
    EXPECT_THAT(gang.kills(rank), IsEmpty());
  }
  EXPECT_EQ(gang.nccl(0).faults().Count("ncclCommAbort"),
            GetParam().has_revoke ? 0 : 1);
  ExpectClean(gang);
}

// ---- what ranks bring

TEST(NcclCommTest, LeavesMemoryUnregisteredThatOnlySomeRanksHave) {
  NcclWorld gang(2);
  RunGang(gang, [&gang](int rank, NcclComm& comm) {
    if (rank == 1) {
      COHORT_ASSERT_OK(comm.Allocate(400));
    }
    std::array<float, 100> values = Ones();
    COHORT_ASSERT_OK(Sum(comm, values));
    EXPECT_EQ(gang.nccl(rank).windows(), 0);
    // Now all have it; the next new shape finds out.
    if (rank == 0) {
      COHORT_ASSERT_OK(comm.Allocate(400));
    }
    COHORT_ASSERT_OK(Sum(comm, std::span(values).first(50)));
    EXPECT_EQ(gang.nccl(rank).windows(), 1);
  });
  ExpectClean(gang);
}

TEST(NcclCommTest, GoesOnWithoutAWindowThatNcclRefuses) {
  NcclWorld gang(1);
  gang.nccl(0).faults().Fail("ncclCommWindowRegister", nccl::kInvalidUsage);
  RunGang(gang, [](int, NcclComm& comm) {
    COHORT_ASSERT_OK(comm.Allocate(400));
    std::array<float, 100> values = Ones();
    COHORT_EXPECT_OK(Sum(comm, values));
  });
  ExpectClean(gang);
}

TEST(NcclCommTest, TellsAllRanksOfADifferenceThatCameTooLateAndIsOver) {
  NcclWorld gang(3);
  RunGang(gang, [](int rank, NcclComm& comm) {
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
  ExpectClean(gang);
}

// A rank that brings something new has not launched; the others have.
TEST(NcclCommTest, IsOverOnAllRanksWhenSomeHadLaunched) {
  NcclWorld gang(3);
  RunGang(gang, [](int rank, NcclComm& comm) {
    std::array<float, 100> values = Ones();
    COHORT_ASSERT_OK(Sum(comm, values));
    EXPECT_THAT(Sum(comm, std::span(values).first(rank == 1 ? 7 : 100)),
                StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(comm.Barrier(kLong), StatusIs(kAborted));
  });
  ExpectClean(gang);
}

TEST(NcclCommTest, SaysWhenTheGpuHasNoMemoryAndGoesOn) {
  NcclWorld gang(2);
  RunGang(gang, [](int rank, NcclComm& comm) {
    EXPECT_THAT(comm.Allocate(size_t{2} << 30),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         AllOf(HasSubstr(GpuOf(rank)),
                               HasSubstr(absl::StrCat("rank ", rank)),
                               HasSubstr("of 1073741824 free"))));
    std::array<float, 100> values = Ones();
    COHORT_EXPECT_OK(Sum(comm, values));
    EXPECT_EQ(values[0], 2.0f);
  });
  ExpectClean(gang);
}

TEST(NcclCommTest, NamesTheRankThatHasNoMemoryToStage) {
  NcclWorld gang(2);
  RunGang(gang, [&gang](int rank, NcclComm& comm) {
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
  ExpectClean(gang);
}

// ---- which ranks can use NCCL

TEST(NcclCommTest, TellsAllRanksWhatOneLacksAndLeavesTheHostsUsable) {
  NcclWorld gang(3);
  RunRanks(3, [&gang](int rank) {
    NcclCommOptions options = gang.Options(rank);
    if (rank == 1) options.driver = absl::FailedPreconditionError("no libcuda");
    EXPECT_THAT(
        gang.Join(rank, std::move(options)),
        AllOf(
            StatusIs(kUnmet, "rank 1: no libcuda"),
            ResultOf([](const auto& comm) { return GetReason(comm.status()); },
                     kNcclUnusable)));
  });
  ExpectClean(gang);
}

TEST(NcclCommTest, RefusesTwoRanksOnOneGpu) {
  NcclWorld gang(3);
  cuda::FakeDriver& shared = gang.driver(0);
  RunRanks(3, [&](int rank) {
    NcclCommOptions options = gang.Options(rank);
    if (rank == 2) options.driver = shared.table();
    auto host = gang.Host(rank);
    COHORT_ASSERT_OK(host);
    Exchange exchange = gang.exchange().For(rank);
    EXPECT_THAT(NcclComm::Connect(std::move(options), **host, exchange),
                StatusIs(kUnmet, AllOf(HasSubstr("ranks 0 and 2 share GPU-01"),
                                       HasSubstr("one rank a GPU"))));
    COHORT_EXPECT_OK((*host)->Barrier(kLong)) << "the caller's again";
  });
}

TEST(NcclCommTest, RefusesDifferentVersions) {
  NcclWorld gang(2);
  cuda::FakeDriver driver;
  nccl::FakeNccl older(gang.fabric(), driver, 22203);
  RunRanks(2, [&](int rank) {
    NcclCommOptions options = gang.Options(rank);
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
  NcclWorld gang(1);
  EXPECT_THAT(gang.Join(0, NcclOfThisMachine()),
              StatusIs(kUnmet, HasSubstr("rank 0: no GPU was granted")));
  if (before == nullptr) {
    unsetenv("CUDA_VISIBLE_DEVICES");
  } else {
    setenv("CUDA_VISIBLE_DEVICES", kept.c_str(), 1);
  }
}

TEST(NcclCommTest, SaysThatThereIsNoSuchGpu) {
  NcclWorld gang(1);
  NcclCommOptions options = gang.Options(0);
  options.device = 4;
  EXPECT_THAT(gang.Join(0, std::move(options)),
              StatusIs(kUnmet, HasSubstr("rank 0: no GPU 4: 1 visible")));
}

// ---- every call fails, every call hangs

struct Fault {
  const char* call;
  bool is_nccls;

  cuda::CallFaults& Of(NcclWorld& gang, int rank) const {
    return is_nccls ? gang.nccl(rank).faults() : gang.driver(rank).faults();
  }
};

std::string FaultName(const ::testing::TestParamInfo<Fault>& info) {
  return info.param.call;
}

class ConnectFaultTest : public ::testing::TestWithParam<Fault> {};

INSTANTIATE_TEST_SUITE_P(
    Calls, ConnectFaultTest,
    ::testing::Values(
        Fault{"cuDeviceGetCount", false}, Fault{"cuDeviceGet", false},
        Fault{"cuDeviceGetUuid", false}, Fault{"cuDeviceGetName", false},
        Fault{"cuDevicePrimaryCtxRetain", false},
        Fault{"cuCtxSetCurrent", false}, Fault{"cuStreamCreate", false},
        Fault{"cuEventCreate", false}, Fault{"ncclGetUniqueId", true},
        Fault{"ncclCommInitRankConfig", true},
        Fault{"ncclCommGetAsyncError", true}),
    FaultName);

TEST_P(ConnectFaultTest, TellsAllRanksWhenItFails) {
  NcclWorld gang(2);
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
  ExpectClean(gang);
}

TEST_P(ConnectFaultTest, EndsByItsDeadlineWhenItHangs) {
  NcclWorld gang(2);
  GetParam().Of(gang, 0).Hang(GetParam().call);
  RunRanks(2, [&](int rank) {
    NcclCommOptions options = gang.Options(rank);
    Impatient(options);
    options.connect_deadline = absl::Milliseconds(300);
    const absl::Duration begin = Now();
    const auto comm = gang.Join(rank, std::move(options));
    EXPECT_FALSE(comm.ok() && rank == 0);
    EXPECT_THAT(comm.ok() ? (*comm)->Barrier(kLong) : absl::AbortedError(""),
                StatusIs(kAborted));
    EXPECT_LT(Now() - begin, absl::Seconds(10));
  });
  EXPECT_THAT(gang.kills(0), Contains(HasSubstr("rank 0 of epoch 2 hangs in")));
  ExpectClean(gang);
}

class RunFaultTest : public ::testing::TestWithParam<Fault> {
 protected:
  // An operation of both kinds of memory.
  static absl::Status Work(NcclComm& comm, absl::Duration deadline) {
    auto memory = comm.Allocate(4000);
    if (!memory.ok()) return memory.status();
    const absl::Status zeroed = comm.Zero(*memory);
    if (!zeroed.ok()) return zeroed;
    const Buffer device = {.data = memory->data(), .count = 1000};
    const absl::Status sent = comm.Broadcast(device, 0, deadline);
    if (!sent.ok()) return sent;
    std::array<float, 100> host = Ones();
    return Sum(comm, host, deadline);
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
  NcclWorld gang(3);
  std::latch connected(3);
  RunGang(gang, [&](int rank, NcclComm& comm) {
    connected.arrive_and_wait();
    if (rank == 1) {
      GetParam().Of(gang, 1).Fail(
          GetParam().call, GetParam().is_nccls ? nccl::kUnhandledCudaError
                                               : cuda::kIllegalAddress);
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
  ExpectClean(gang);
}

// The same and what else may hang, while its failure means no harm.
class RunHangTest : public RunFaultTest {};

INSTANTIATE_TEST_SUITE_P(
    Calls, RunHangTest,
    ::testing::Values(
        Fault{"cuMemsetD8Async", false}, Fault{"cuEventRecord", false},
        Fault{"cuEventQuery", false}, Fault{"cuMemcpyAsync", false},
        Fault{"cuPointerGetAttribute", false}, Fault{"cuMemAlloc", false},
        Fault{"cuMemHostAlloc", false}, Fault{"ncclMemAlloc", true},
        Fault{"ncclCommWindowRegister", true}, Fault{"ncclGroupStart", true},
        Fault{"ncclAllReduce", true}, Fault{"ncclBroadcast", true},
        Fault{"ncclGroupEnd", true}, Fault{"ncclCommGetAsyncError", true}),
    FaultName);

TEST_P(RunHangTest, LeavesTheCallerByItsDeadlineAndAsksToKill) {
  NcclWorld gang(2);
  std::latch connected(2);
  RunGang(
      gang,
      [&](int rank, NcclComm& comm) {
        connected.arrive_and_wait();
        if (rank == 1) GetParam().Of(gang, 1).Hang(GetParam().call);
        const absl::Duration begin = Now();
        EXPECT_FALSE(Work(comm, absl::Milliseconds(200)).ok());
        EXPECT_LT(Now() - begin, absl::Seconds(10));
      },
      Impatient);
  EXPECT_THAT(gang.kills(1), Contains(HasSubstr(GetParam().call)));
  ExpectClean(gang);
}

// What is called where nothing may be lost any more.
class CloseFaultTest : public ::testing::TestWithParam<Fault> {};

INSTANTIATE_TEST_SUITE_P(
    Calls, CloseFaultTest,
    ::testing::Values(Fault{"ncclCommWindowDeregister", true},
                      Fault{"ncclCommFinalize", true},
                      Fault{"ncclCommDestroy", true},
                      Fault{"ncclMemFree", true}, Fault{"cuMemFree", false},
                      Fault{"cuMemFreeHost", false},
                      Fault{"cuStreamDestroy", false},
                      Fault{"cuEventDestroy", false},
                      Fault{"cuDevicePrimaryCtxRelease", false}),
    FaultName);

TEST_P(CloseFaultTest, ClosesWhenItHangs) {
  NcclWorld gang(1);
  RunGang(
      gang,
      [&](int, NcclComm& comm) {
        COHORT_ASSERT_OK(comm.Allocate(400));
        std::array<float, 100> values = Ones();
        COHORT_ASSERT_OK(Sum(comm, values));
        GetParam().Of(gang, 0).Hang(GetParam().call);
      },
      Impatient);
  EXPECT_EQ(gang.kills(0).size(), 1u);
  ExpectClean(gang);
}

TEST_P(CloseFaultTest, ClosesWhenItFails) {
  NcclWorld gang(1);
  RunGang(gang, [&](int, NcclComm& comm) {
    COHORT_ASSERT_OK(comm.Allocate(400));
    std::array<float, 100> values = Ones();
    COHORT_ASSERT_OK(Sum(comm, values));
    GetParam().Of(gang, 0).Fail(GetParam().call, 1);
  });
  EXPECT_THAT(gang.kills(0), IsEmpty());
}

// ---- NCCL's own errors

TEST(NcclCommTest, AbortsAllRanksOnAnErrorInTheBackground) {
  NcclWorld gang(3);
  gang.fabric().Hold();
  RunGang(gang, [&gang](int rank, NcclComm& comm) {
    std::array<float, 100> values = Ones();
    std::thread failure;
    if (rank == 1) {
      failure = std::thread([&] {
        AwaitLaunch(gang, 1);
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
  ExpectClean(gang);
}

// ---- revoke in every state

// How long Revoke may take to end a call: CM-1.
constexpr absl::Duration kSoon = absl::Milliseconds(100);

TEST(NcclRevokeTest, EndsWhatStillConnects) {
  NcclWorld gang(3);
  std::latch refused(2);
  RunRanks(3, [&](int rank) {
    if (rank == 2) {
      // It says that it will come, and does not.
      auto host = gang.Host(2);
      COHORT_ASSERT_OK(host);
      Exchange exchange = gang.exchange().For(2);
      NcclCommOptions options = gang.Options(2);
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
      EXPECT_FALSE(
          NcclComm::Connect(std::move(options), **host, exchange).ok());
      revoker.join();
      return;
    }
    EXPECT_THAT(gang.Join(rank), StatusIs(kAborted, HasSubstr("epoch 2")));
    // Nothing else is allowed before it is up.
    EXPECT_EQ(gang.nccl(rank).faults().Count("ncclCommAbort"), 1);
    EXPECT_EQ(gang.nccl(rank).faults().Count("ncclCommRevoke"), 0);
    refused.count_down();
  });
  ExpectClean(gang);
}

TEST(NcclRevokeTest, EndsAnIdleCommunicator) {
  NcclWorld gang(2);
  RunGang(gang, [](int, NcclComm& comm) {
    COHORT_ASSERT_OK(comm.Barrier(kLong));
    comm.Revoke();
    std::array<float, 100> values = Ones();
    EXPECT_THAT(Sum(comm, values), StatusIs(kAborted, HasSubstr("epoch 2")));
    EXPECT_THAT(comm.CheckPeers(), StatusIs(kAborted));
    EXPECT_THAT(comm.Allocate(10), StatusIs(kAborted));
  });
  ExpectClean(gang);
}

// The others are stopped: they never come to the collective.
TEST(NcclRevokeTest, EndsAWaitForPeersThatAreStopped) {
  NcclWorld gang(3);
  std::latch over(1);
  RunGang(gang, [&](int rank, NcclComm& comm) {
    std::array<float, 100> values = Ones();
    COHORT_ASSERT_OK(Sum(comm, values));
    if (rank != 0) {
      over.wait();
      return;
    }
    absl::Duration revoked_at;
    std::thread revoker([&] {
      AwaitLaunch(gang, 0, 2);
      revoked_at = Now();
      comm.Revoke();
    });
    EXPECT_THAT(Sum(comm, values), StatusIs(kAborted));
    const absl::Duration ended_at = Now();
    revoker.join();
    EXPECT_LT(ended_at - revoked_at, 10 * kSoon) << "with room for a busy CPU";
    over.count_down();
  });
  ExpectClean(gang);
}

// All came, and the GPU of one hangs: every rank is in its collective.
TEST(NcclRevokeTest, EndsACollectiveInWhichTheGpuHangs) {
  NcclWorld gang(2);
  gang.fabric().Hold();
  RunGang(gang, [&](int rank, NcclComm& comm) {
    std::array<float, 100> values = Ones();
    std::thread revoker;
    if (rank == 0) {
      revoker = std::thread([&] {
        for (int each = 0; each < 2; ++each) AwaitLaunch(gang, each);
        comm.Revoke();
      });
    }
    EXPECT_THAT(Sum(comm, values), StatusIs(kAborted)) << rank;
    if (rank == 0) revoker.join();
  });
  for (int rank = 0; rank < 2; ++rank) EXPECT_THAT(gang.kills(rank), IsEmpty());
  ExpectClean(gang);
}

// The process of a rank ends while all are in the collective.
TEST(NcclRevokeTest, EndsACollectiveWhosePeerDied) {
  NcclWorld gang(2);
  gang.fabric().Hold();
  RunRanks(2, [&](int rank) {
    if (rank == 1) {
      std::thread killer;
      {
        auto comm = gang.Join(1);
        COHORT_ASSERT_OK(comm);
        killer = std::thread([&] {
          AwaitLaunch(gang, 1);
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
  ExpectClean(gang);
}

TEST(NcclRevokeTest, AbortsWhereARevokeFails) {
  NcclWorld gang(1);
  gang.nccl(0).faults().Fail("ncclCommRevoke", nccl::kInternalError);
  RunGang(gang, [](int, NcclComm& comm) { comm.Revoke(); });
  EXPECT_EQ(gang.nccl(0).faults().Count("ncclCommAbort"), 1);
  EXPECT_THAT(gang.kills(0), IsEmpty());
  ExpectClean(gang);
}

TEST(NcclRevokeTest, AbortsWhereARevokeIsLate) {
  NcclWorld gang(1);
  RunGang(
      gang,
      [&gang](int, NcclComm& comm) {
        // It never becomes quiet.
        gang.nccl(0).FailInBackground(nccl::kInProgress);
        comm.Revoke();
      },
      Impatient);
  EXPECT_EQ(gang.nccl(0).faults().Count("ncclCommRevoke"), 1);
  EXPECT_EQ(gang.nccl(0).faults().Count("ncclCommAbort"), 1);
  EXPECT_THAT(gang.kills(0), IsEmpty());
  ExpectClean(gang);
}

// The last rung, within a second; calls have long ended by then.
TEST(NcclRevokeTest, AsksToKillWhereRevokeOrAbortHangs) {
  for (const auto& [call, version] : {std::pair("ncclCommRevoke", 22809),
                                      std::pair("ncclCommAbort", 22203)}) {
    NcclWorld gang(1, version);
    gang.nccl(0).faults().Hang(call);
    absl::Duration revoked_at;
    RunGang(gang, [&](int, NcclComm& comm) {
      revoked_at = Now();
      comm.Revoke();
      EXPECT_LT(Now() - revoked_at, 10 * kSoon) << "it only says so";
    });
    EXPECT_GE(Now() - revoked_at, absl::Seconds(1));
    EXPECT_THAT(gang.kills(0), Contains(HasSubstr(call)));
    ExpectClean(gang);
  }
}

// ---- deadlines

TEST(NcclCommTest, SaysThatAllRanksCameWhenTheGpuIsLate) {
  NcclWorld gang(2);
  gang.fabric().Hold();
  RunGang(gang, [](int rank, NcclComm& comm) {
    std::array<float, 100> values = Ones();
    EXPECT_THAT(Sum(comm, values, absl::Milliseconds(150)),
                StatusIs(kLate, AllOf(HasSubstr("AllReduce #1 (sum)"),
                                      HasSubstr(absl::StrCat("rank ", rank)),
                                      HasSubstr("150ms"),
                                      HasSubstr("all ranks came"))));
    EXPECT_EQ(values[0], 1.0f) << "NC-6";
  });
  ExpectClean(gang);
}

TEST(NcclCommTest, TakesWhatIsLateButInTime) {
  NcclWorld gang(2);
  gang.fabric().Hold();
  RunGang(gang, [&gang](int rank, NcclComm& comm) {
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
  ExpectClean(gang);
}

}  // namespace
}  // namespace cohort::trainer
