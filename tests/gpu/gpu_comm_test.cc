// Communicators on the machine's own GPUs, with its own driver and NCCL, by the
// classes that ranks use.  Ranks are processes.  With fewer GPUs than ranks
// NCCL is led to take two ranks on one (gpu_machine.h says how): a trick for
// tests.

#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/real_clock.h"
#include "common/status_macros.h"
#include "common/testing/status_matchers.h"
#include "tests/gpu/comm_checks.h"
#include "trainer/comm/gpu_rendezvous.h"
#include "trainer/comm/reduce_kernels.h"
#include "trainer/comm/testing/device_copier.h"
#include "trainer/comm/testing/gpu_machine.h"
#include "trainer/comm/testing/process_gang.h"

namespace cohort::trainer {
namespace {

using Place = ProcessGang::Place;

constexpr absl::Duration kLong = absl::Minutes(1);

// A way to all-reduce on GPUs.
struct Backend {
  std::string name;
  // Why it cannot be tried with so many ranks on this machine; empty: it can.
  std::function<std::string(const GpuMachine&, int world)> obstacle;
  // In a rank's process.  `ordinal` becomes the GPU that it takes.
  std::function<absl::StatusOr<std::unique_ptr<Comm>>(Place&, int* ordinal)>
      connect;
};

absl::StatusOr<std::unique_ptr<Comm>> ConnectNccl(Place& place, int* ordinal) {
  GpuCommOptions options = NcclOnThisMachine(
      ThisGpuMachine(), place.control.rank(), place.control.world());
  *ordinal = options.device;
  return ConnectGpuComm(std::move(options), place.control, place.exchange);
}

absl::StatusOr<std::unique_ptr<Comm>> ConnectIpc(Place& place, int* ordinal) {
  GpuCommOptions options = IpcOnThisMachine();
  *ordinal = options.device;
  return ConnectGpuComm(std::move(options), place.control, place.exchange);
}

// The one place where a backend is added to all of these tests.
const Backend kBackends[] = {
    {.name = "nccl",
     .obstacle =
         [](const GpuMachine& machine, int) {
           return machine.no_gpu.empty() ? machine.no_nccl : machine.no_gpu;
         },
     .connect = ConnectNccl},
    {.name = "cuda_ipc",
     .obstacle =
         [](const GpuMachine& machine, int) {
           if (!machine.no_gpu.empty()) return machine.no_gpu;
           return std::string(ReduceKernels().empty() ? "built without nvcc"
                                                      : "");
         },
     .connect = ConnectIpc},
};

struct Case {
  Backend backend;
  int world;
};

// In the names of ctest.
void PrintTo(const Case& c, std::ostream* os) {
  *os << c.backend.name << " x " << c.world;
}

std::vector<Case> Cases(int world_min) {
  std::vector<Case> cases;
  for (const Backend& backend : kBackends) {
    for (int world = world_min; world <= 2; ++world) {
      cases.push_back({backend, world});
    }
  }
  return cases;
}

std::string NameOf(const ::testing::TestParamInfo<Case>& info) {
  return absl::StrCat(info.param.backend.name, info.param.world);
}

class GpuCommTest : public ::testing::TestWithParam<Case> {
 protected:
  // For the report of tools/gpu_check.sh.
  static void SetUpTestSuite() {
    const GpuMachine& machine = ThisGpuMachine();
    if (!machine.no_gpu.empty()) return;
    std::cout << "[ MACHINE  ] CUDA " << machine.driver_version << ", NCCL "
              << (machine.no_nccl.empty() ? machine.nccl_version
                                          : machine.no_nccl)
              << std::endl;
  }
  void SetUp() override {
    const std::string obstacle =
        GetParam().backend.obstacle(ThisGpuMachine(), GetParam().world);
    if (!obstacle.empty()) GTEST_SKIP() << obstacle;
  }

  using Body = std::function<absl::Status(Place&, Comm&, DeviceCopier& copier)>;

  // Starts ranks that connect and run `body`.
  void Start(const Body& body) {
    const Backend& backend = GetParam().backend;
    auto gang = ProcessGang::Start(
        GetParam().world, [&backend, &body](Place& place) -> absl::Status {
          int ordinal = 0;
          COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Comm> comm,
                                  backend.connect(place, &ordinal));
          COHORT_ASSIGN_OR_RETURN(const auto driver, cuda::LoadDriver());
          COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceCopier> copier,
                                  DeviceCopier::Open(driver, ordinal));
          return body(place, *comm, *copier);
        });
    ASSERT_THAT(gang, IsOk());
    gang_ = *std::move(gang);
  }
  void Run(const Body& body) {
    ASSERT_NO_FATAL_FAILURE(Start(body));
    EXPECT_THAT(gang_->EndAll(), IsOk());
  }

  std::unique_ptr<ProcessGang> gang_;
};
INSTANTIATE_TEST_SUITE_P(Backends, GpuCommTest, ::testing::ValuesIn(Cases(1)),
                         NameOf);

TEST_P(GpuCommTest, CombinesEveryType) {
  Run([](Place&, Comm& comm, DeviceCopier& copier) {
    return CheckCollectives(comm, copier);
  });
}

TEST_P(GpuCommTest, RepeatsAShape) {
  Run([](Place&, Comm& comm, DeviceCopier& copier) {
    return CheckRepeats(comm, copier);
  });
}

TEST_P(GpuCommTest, RefusesWhatDiffersAndWhatIsTooMuch) {
  Run([](Place&, Comm& comm, DeviceCopier&) {
    COHORT_RETURN_IF_ERROR(CheckTooMuchMemory(comm));
    return comm.world() > 1 ? CheckMismatch(comm) : absl::OkStatus();
  });
}

TEST_P(GpuCommTest, IsOverOnceRevoked) {
  Run([](Place&, Comm& comm, DeviceCopier&) {
    COHORT_RETURN_IF_ERROR(comm.Barrier(kLong));
    comm.Revoke();
    const absl::Status ended = comm.Barrier(kLong);
    return absl::IsAborted(ended)
               ? absl::OkStatus()
               : absl::DataLossError(absl::StrCat("a barrier after a revoke: ",
                                                  ended.ToString()));
  });
}

// All-reduces 64 MiB until that fails, and answers with what it failed with.
// Tells "up" once it is in the midst of it, then when the survivor was told,
// and when nothing of its communicator works any more.
absl::Status ReduceToTheEnd(Place& place, std::unique_ptr<Comm> comm,
                            absl::Duration deadline) {
  constexpr size_t kCount = size_t{16} << 20;
  COHORT_ASSIGN_OR_RETURN(const std::span<std::byte> memory,
                          comm->Allocate(kCount * sizeof(float)));
  absl::Status ended;
  for (int round = 0; ended.ok(); ++round) {
    if (round == 3) place.tell("up");
    ended = comm->AllReduce({memory.data(), kCount, DType::kF32},
                            ReduceOp::kMax, round < 3 ? kLong : deadline);
  }
  place.tell(absl::StrCat(absl::ToInt64Nanoseconds(MonotonicNow())));
  comm.reset();
  place.tell(absl::StrCat(absl::ToInt64Nanoseconds(MonotonicNow())));
  return ended;
}

// One of the ranks dies or stands still while all are in a collective.
class GpuCommFaultTest : public GpuCommTest {
 protected:
  void SetUp() override {
    std::cout << "[ MEASURES ] "
              << ::testing::UnitTest::GetInstance()->current_test_info()->name()
              << ": when the survivor is told and quiet" << std::endl;
    GpuCommTest::SetUp();
  }

  void StartReducing(absl::Duration deadline) {
    const Backend& backend = GetParam().backend;
    auto gang = ProcessGang::Start(
        GetParam().world, [&backend, deadline](Place& place) -> absl::Status {
          int ordinal = 0;
          COHORT_ASSIGN_OR_RETURN(std::unique_ptr<Comm> comm,
                                  backend.connect(place, &ordinal));
          return ReduceToTheEnd(place, std::move(comm), deadline);
        });
    ASSERT_THAT(gang, IsOk());
    gang_ = *std::move(gang);
    for (int rank = 0; rank < GetParam().world; ++rank) {
      ASSERT_THAT(gang_->Hear(rank), IsOkAndHolds("up"));
    }
  }

  // Says how long after `since` rank 0 was told, and quiet.  It is a figure,
  // not a verdict: the machine may be busy.
  void Measure(absl::string_view fault, absl::Duration since) {
    for (const char* const what : {"told", "quiet"}) {
      const absl::StatusOr<std::string> line = gang_->Hear(0);
      int64_t at = 0;
      ASSERT_THAT(line, IsOk());
      ASSERT_TRUE(absl::SimpleAtoi(*line, &at)) << *line;
      std::cout << "[ MEASURED ] " << GetParam().backend.name << ": after "
                << fault << " the survivor is " << what << " within "
                << absl::ToDoubleMilliseconds(absl::Nanoseconds(at) - since)
                << " ms (aim 1000)" << std::endl;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, GpuCommFaultTest,
                         ::testing::ValuesIn(Cases(2)), NameOf);

TEST_P(GpuCommFaultTest, SurvivesAKilledRank) {
  ASSERT_NO_FATAL_FAILURE(StartReducing(kLong));
  const absl::Duration killed = MonotonicNow();
  gang_->Kill(1);
  gang_->Revoke();
  Measure("SIGKILL of a rank in a collective", killed);
  EXPECT_THAT(gang_->End(0), StatusIs(absl::StatusCode::kAborted));
}

TEST_P(GpuCommFaultTest, IsRevokedBesideAStoppedRank) {
  ASSERT_NO_FATAL_FAILURE(StartReducing(kLong));
  gang_->Stop(1);
  const absl::Duration revoked = MonotonicNow();
  gang_->Revoke();
  Measure("a revoke beside a stopped rank", revoked);
  EXPECT_THAT(gang_->End(0), StatusIs(absl::StatusCode::kAborted));
}

TEST_P(GpuCommFaultTest, MeetsItsDeadlineBesideAStoppedRank) {
  constexpr absl::Duration kDeadline = absl::Seconds(2);
  ASSERT_NO_FATAL_FAILURE(StartReducing(kDeadline));
  gang_->Stop(1);
  Measure("SIGSTOP of a rank, and a deadline of 2 s,",
          MonotonicNow() + kDeadline);
  EXPECT_THAT(gang_->End(0), StatusIs(absl::StatusCode::kDeadlineExceeded));
}

}  // namespace
}  // namespace cohort::trainer
