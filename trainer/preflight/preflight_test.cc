#include "trainer/preflight/preflight.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/file.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "shm/arena.h"
#include "trainer/comm/shm_comm.h"
#include "trainer/comm/testing/fake_nccl.h"
#include "trainer/comm/testing/fake_reduce.h"
#include "trainer/comm/testing/ranks.h"
#include "trainer/cuda/testing/fake_driver.h"
#include "trainer/preflight/lockstep.h"

namespace cohort::trainer {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::SizeIs;
using Reports = std::vector<absl::StatusOr<PreflightReport>>;

constexpr int64_t kEpoch = 3;

// What a test may wait for, and send.
PreflightLimits Small() {
  return {.host_bytes = 64 << 10,
          .gpu_bytes = 64 << 10,
          .repetitions = 2,
          .again_max = 2};
}

// A gang whose ranks are threads of this process.
class PreflightTest : public ::testing::Test {
 protected:
  // On one node.
  void MakeArena(int world) {
    gang_ = directory_.File(absl::StrCat("gang-of-", world));
    COHORT_ASSERT_OK(MakeDirectories(gang_, 0700));
    COHORT_ASSERT_OK(shm::Arena::Create(gang_, {.attempt = "preflight-test",
                                                .epoch = kEpoch,
                                                .local_world = world})
                         .status());
  }

  PreflightOptions OptionsOf(int rank, int world, int nodes) const {
    PreflightOptions options;
    options.place = {.epoch = kEpoch,
                     .rank = rank,
                     .world = world,
                     .local_rank = rank,
                     .local_world = world,
                     .node_rank = rank % nodes,
                     .node_count = nodes};
    options.host = "127.0.0.1";
    options.directory = gang_;
    options.limits = Small();
    return options;
  }

  // Those of `ranks` run it, changed by `change`; the others do not come.
  Reports Run(int world, int nodes, const std::set<int>& absent = {},
              const std::function<void(PreflightOptions&)>& change = nullptr) {
    Reports reports(world, absl::UnknownError("absent"));
    MemoryExchange exchange(world);
    RunRanks(world, [&](int rank) {
      if (absent.contains(rank)) return;
      PreflightOptions options = OptionsOf(rank, world, nodes);
      if (change) change(options);
      Exchange mine = exchange.For(rank);
      Preflight preflight(std::move(options), mine);
      reports[rank] = preflight.Run();
      if (!reports[rank].ok()) preflight.RevokeFor(reports[rank].status());
    });
    return reports;
  }

  const TempDir directory_;
  std::string gang_;
};

void ExpectWhole(const Reports& reports, const std::string& transport) {
  const size_t world = reports.size();
  for (const auto& report : reports) {
    COHORT_ASSERT_OK(report);
    EXPECT_EQ(report->transport, transport);
    EXPECT_THAT(report->pairs, SizeIs(world * (world - 1) / 2));
    EXPECT_THAT(report->ranks, SizeIs(world));
    for (size_t i = 0; i < report->pairs.size(); ++i) {
      const PairResult& pair = report->pairs[i];
      EXPECT_EQ(pair.error, "");
      EXPECT_GT(pair.gigabytes_per_second, 0);
      // All ranks judge by the same figures.
      EXPECT_EQ(pair.gigabytes_per_second,
                reports[0]->pairs[i].gigabytes_per_second);
    }
  }
}

TEST_F(PreflightTest, EveryPairOfANodeMeetsInSharedMemory) {
  for (const int world : {2, 3, 5}) {
    SCOPED_TRACE(world);
    MakeArena(world);
    const Reports reports = Run(world, /*nodes=*/1);
    ExpectWhole(reports, "shared memory");
    // What the pairs met in is gone.
    for (const auto& entry : std::filesystem::directory_iterator(gang_)) {
      EXPECT_FALSE(entry.is_directory()) << entry.path();
    }
  }
}

TEST_F(PreflightTest, AGangOfOneMeetsNobody) {
  const Reports reports = Run(1, 1);
  COHORT_ASSERT_OK(reports[0]);
  EXPECT_THAT(reports[0]->pairs, IsEmpty());
  EXPECT_EQ(Judge(*reports[0]).verdict, Judgement::Verdict::kPassed);
}

TEST_F(PreflightTest, WhoDoesNotComeIsNamed) {
  MakeArena(3);
  const Reports reports = Run(3, 1, {1}, [](PreflightOptions& options) {
    options.limits.join = absl::Milliseconds(200);
  });
  for (const int rank : {0, 2}) {
    EXPECT_THAT(reports[rank],
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         AllOf(HasSubstr("meeting over shared memory"),
                               HasSubstr("rank(s) 1"))));
  }
}

// As one that is stopped after the first meeting.
TEST_F(PreflightTest, WhoStopsIsNamed) {
  MakeArena(3);
  std::unique_ptr<shm::ArenaPlace> place;
  std::unique_ptr<ShmComm> comm;
  Reports reports;
  std::thread stopped([&] {
    place = *shm::ArenaPlace::Claim(gang_, 2);
    comm = *ShmComm::Create(*place, kEpoch);
    EXPECT_TRUE(comm->Barrier(absl::Seconds(60)).ok());
  });
  reports = Run(3, 1, {2}, [](PreflightOptions& options) {
    options.limits.pair = absl::Milliseconds(300);
    options.limits.leave = absl::ZeroDuration();
  });
  stopped.join();
  for (const int rank : {0, 1}) {
    EXPECT_FALSE(reports[rank].ok());
    EXPECT_THAT(reports[rank].status().message(),
                AllOf(HasSubstr("telling where they are over shared memory"),
                      HasSubstr("rank(s) 2")));
  }
}

TEST_F(PreflightTest, WhoDiesIsNamed) {
  MakeArena(3);
  std::thread dying([&] {
    auto place = *shm::ArenaPlace::Claim(gang_, 2);
    auto comm = *ShmComm::Create(*place, kEpoch);
    EXPECT_TRUE(comm->Barrier(absl::Seconds(60)).ok());
  });
  const Reports reports = Run(3, 1, {2});
  dying.join();
  // Who saw it first tells the other by a revoke.
  std::string said;
  for (const int rank : {0, 1}) {
    EXPECT_THAT(reports[rank], StatusIs(absl::StatusCode::kAborted));
    said += std::string(reports[rank].status().message());
  }
  EXPECT_THAT(said, HasSubstr("the process of local rank 2"));
}

TEST_F(PreflightTest, NoRoundBeginsAfterTheirTime) {
  MakeArena(5);
  const Reports reports = Run(5, 1, {}, [](PreflightOptions& options) {
    options.limits.rounds_max = absl::ZeroDuration();
  });
  for (const auto& report : reports) {
    COHORT_ASSERT_OK(report);
    // The first one, in which one of five sits out.
    EXPECT_THAT(report->pairs, SizeIs(2));
  }
}

// Who waits for a pair does not give it up before the pair does itself, and
// every round has its time.
TEST(PreflightLimitsTest, AddUp) {
  const PreflightLimits limits;
  EXPECT_GT(limits.meeting(), 2 * limits.pair);
  EXPECT_EQ(limits.rounds(2), absl::Seconds(20));
  EXPECT_EQ(limits.rounds(8), absl::Seconds(20));
  EXPECT_EQ(limits.rounds(64), absl::Seconds(2 * 63));
  EXPECT_EQ(limits.rounds(100'000), limits.rounds_max);
}

// A pair without room: its arena cannot be made.
TEST_F(PreflightTest, APairThatCannotConnectFailsAlone) {
  MakeArena(4);
  const std::string blocked = gang_ + "/pair-1-3";
  COHORT_ASSERT_OK(WriteFileAtomically(blocked, "in the way", 0600));
  const Reports reports = Run(4, 1);
  for (const auto& report : reports) {
    COHORT_ASSERT_OK(report);
    EXPECT_THAT(report->pairs, SizeIs(6));
    const Judgement judgement = Judge(*report);
    EXPECT_EQ(judgement.verdict, Judgement::Verdict::kFailed);
    EXPECT_EQ(std::count_if(
                  report->pairs.begin(), report->pairs.end(),
                  [](const PairResult& pair) { return !pair.error.empty(); }),
              1);
    // On a busy machine another pair may well look broken.
    EXPECT_THAT(judgement.failed_ranks, IsSupersetOf({1, 3}));
    EXPECT_THAT(judgement.summary,
                AllOf(HasSubstr("ranks 1 and 3 over shared memory"),
                      HasSubstr("pair-1-3")));
  }
}

#ifdef COHORT_HAVE_GLOO
TEST_F(PreflightTest, EveryPairOfSeveralNodesMeetsOverGloo) {
  for (const int world : {2, 3}) {
    SCOPED_TRACE(world);
    const Reports reports = Run(world, /*nodes=*/2);
    ExpectWhole(reports, "Gloo");
    EXPECT_EQ(reports[0]->ranks[1].host, "127.0.0.1");
    EXPECT_EQ(reports[0]->ranks[1].node, 1);
  }
}
#endif

// Ranks with fake GPUs, each its own.
class GpuPreflightTest : public PreflightTest {
 protected:
  struct Rank {
    Rank(nccl::FakeFabric& fabric, int rank)
        : driver({.uuid_byte = static_cast<char>(rank + 1)}), nccl(fabric) {
      AddReduceKernels(driver);
    }

    // Any bytes: the fake driver knows its kernels by name.
    static constexpr std::byte kKernels[1] = {};

    cuda::FakeDriver driver;
    nccl::FakeNccl nccl;
    std::span<const std::byte> kernels = kKernels;
    std::vector<int> ordinals = {0};
    absl::Duration timeout = absl::Minutes(1);

    void Note(absl::string_view why) {
      MutexLock lock(mutex_);
      told_.emplace_back(why);
    }
    // Of calls that hung.
    std::vector<std::string> Told() {
      MutexLock lock(mutex_);
      return told_;
    }

   private:
    Mutex mutex_;
    std::vector<std::string> told_ ABSL_GUARDED_BY(mutex_);
  };

  void MakeGpus(int world) {
    for (int rank = 0; rank < world; ++rank) {
      gpus_.push_back(std::make_unique<Rank>(fabric_, rank));
    }
  }

  Reports RunOnGpus(int world) {
    return Run(world, 1, {}, [this](PreflightOptions& options) {
      Rank& gpu = *gpus_[options.place.rank];
      options.gpus = {
          .ordinals = gpu.ordinals,
          .load_driver = [&gpu]()
              -> absl::StatusOr<std::shared_ptr<const cuda::DriverTable>> {
            COHORT_RETURN_IF_ERROR(cuda::InitDriver(*gpu.driver.table()));
            return gpu.driver.table();
          },
          .comm =
              [&gpu] {
                return GpuCommOptions{
                    .driver = gpu.driver.table(),
                    .nccl = nccl::MakeLibrary(gpu.nccl.table(), "fake"),
                    .kernels = gpu.kernels};
              }};
      options.limits.gpu_call = gpu.timeout;
      options.hung = [&gpu](absl::string_view why) {
        gpu.Note(why);
        gpu.driver.faults().Release();
      };
    });
  }

  // That no rank passed, and what is said of it.
  static void ExpectFailed(const Reports& reports,
                           const ::testing::Matcher<std::string>& summary) {
    for (const auto& report : reports) {
      COHORT_ASSERT_OK(report);
      const Judgement judgement = Judge(*report);
      EXPECT_EQ(judgement.verdict, Judgement::Verdict::kFailed);
      EXPECT_THAT(judgement.summary, summary);
    }
  }

  nccl::FakeFabric fabric_;
  std::vector<std::unique_ptr<Rank>> gpus_;
};

TEST_F(GpuPreflightTest, AllMeetOverNcclToo) {
  MakeArena(3);
  MakeGpus(3);
  const Reports reports = RunOnGpus(3);
  ExpectWhole(reports, "shared memory");
  for (const auto& gpu : gpus_) {
    EXPECT_GT(gpu->nccl.faults().Count("ncclAllReduce"), 0);
    EXPECT_EQ(gpu->nccl.communicators(), 0u);
    EXPECT_EQ(gpu->driver.device_bytes(), 0u);
  }
}

TEST_F(GpuPreflightTest, RanksOfOneGpuMeetOnItWithoutNccl) {
  MakeArena(2);
  MakeGpus(2);
  gpus_[1] = std::make_unique<Rank>(fabric_, 0);
  const Reports reports = RunOnGpus(2);
  ExpectWhole(reports, "shared memory");
  EXPECT_EQ(reports[0]->no_gpus_because, "");
  for (const auto& gpu : gpus_) {
    EXPECT_GT(gpu->driver.faults().Count("cuLaunchKernel"), 0);
    EXPECT_EQ(gpu->nccl.faults().Count("ncclAllReduce"), 0);
  }
}

TEST_F(GpuPreflightTest, ARankWhoseGpuDoesNotOpenFailsTheGang) {
  MakeArena(3);
  MakeGpus(3);
  gpus_[1]->driver.faults().Fail("cuDevicePrimaryCtxRetain",
                                 cuda::kDeviceUnavailable);
  const Reports reports = RunOnGpus(3);
  ExpectFailed(reports, AllOf(HasSubstr("rank 1 on 127.0.0.1 cannot use its "
                                        "GPU"),
                              HasSubstr("cuDevicePrimaryCtxRetain")));
  // What would be measured is of no use to anybody.
  EXPECT_THAT(reports[0]->pairs, IsEmpty());
}

// As with NVML, but without libcuda.
TEST_F(GpuPreflightTest, GpusWithoutADriverFailTheGang) {
  MakeArena(2);
  MakeGpus(2);
  for (const auto& gpu : gpus_) {
    gpu->driver.faults().Fail("cuInit", cuda::kNoDevice);
  }
  ExpectFailed(RunOnGpus(2), AllOf(HasSubstr("rank 0"), HasSubstr("cuInit"),
                                   HasSubstr("; and 1 more of 2 ranks")));
}

TEST_F(GpuPreflightTest, AGangOfOneOpensItsGpus) {
  MakeGpus(1);
  const Reports good = RunOnGpus(1);
  COHORT_ASSERT_OK(good[0]);
  EXPECT_EQ(Judge(*good[0]).verdict, Judgement::Verdict::kPassed);
  EXPECT_EQ(gpus_[0]->driver.faults().Count("cuDevicePrimaryCtxRetain"), 1);
  EXPECT_EQ(gpus_[0]->driver.contexts(), 0);
  gpus_[0]->driver.faults().Fail("cuDevicePrimaryCtxRetain",
                                 cuda::kEccUncorrectable);
  ExpectFailed(RunOnGpus(1), HasSubstr("CUDA_ERROR_ECC_UNCORRECTABLE"));
}

// A rank may have several; all of them are its command's.
TEST_F(GpuPreflightTest, EveryGpuOfARankIsOpened) {
  MakeGpus(1);
  gpus_[0]->ordinals = {0, 0};
  const int before =
      gpus_[0]->driver.faults().Count("cuDevicePrimaryCtxRetain");
  COHORT_ASSERT_OK(RunOnGpus(1)[0]);
  EXPECT_EQ(gpus_[0]->driver.faults().Count("cuDevicePrimaryCtxRetain"),
            before + 2);
  gpus_[0]->ordinals = {0, 1};
  ExpectFailed(RunOnGpus(1), HasSubstr("no GPU 1: 1 visible here"));
}

// Rank 1 would end there; here it goes on when all was told.
TEST_F(GpuPreflightTest, ACallThatHangsIsToldWithRankGpuAndCall) {
  for (const char* const call : {"cuInit", "cuDevicePrimaryCtxRetain"}) {
    SCOPED_TRACE(call);
    gpus_.clear();
    MakeArena(2);
    MakeGpus(2);
    gpus_[1]->timeout = absl::Milliseconds(20);
    gpus_[1]->driver.faults().Hang(call);
    ExpectWhole(RunOnGpus(2), "shared memory");
    EXPECT_THAT(gpus_[1]->Told(),
                Contains(AllOf(HasSubstr("rank 1: GPU 0"), HasSubstr(call),
                               HasSubstr("has not come back for 20ms"))));
    EXPECT_THAT(gpus_[0]->Told(), IsEmpty());
    RemoveTree(gang_).IgnoreError();
  }
}

// Ranks of one GPU without kernels: the command may do without, or bring what
// they lack.
TEST_F(GpuPreflightTest, WhereNcclCannotBeTheReportSaysWhy) {
  MakeArena(2);
  MakeGpus(2);
  gpus_[1] = std::make_unique<Rank>(fabric_, 0);
  gpus_[1]->kernels = {};
  const Reports reports = RunOnGpus(2);
  ExpectWhole(reports, "shared memory");
  for (const auto& report : reports) {
    EXPECT_THAT(report->no_gpus_because, HasSubstr("all ranks share"));
    EXPECT_EQ(Judge(*report).verdict, Judgement::Verdict::kSlow);
    EXPECT_EQ(gpus_[0]->nccl.faults().Count("ncclAllReduce"), 0);
  }
}

TEST_F(GpuPreflightTest, NcclThatFailsEndsIt) {
  MakeArena(2);
  MakeGpus(2);
  gpus_[1]->nccl.FailInBackground(nccl::kSystemError);
  const Reports reports = RunOnGpus(2);
  std::string said;
  for (const auto& report : reports) {
    EXPECT_FALSE(report.ok());
    said += std::string(report.status().message());
  }
  EXPECT_THAT(said, HasSubstr("all together on GPUs"));
}

TEST(LockstepTest, AllTakeTheSameSteps) {
  const TempDir directory;
  COHORT_ASSERT_OK(
      shm::Arena::Create(directory.path(),
                         {.attempt = "a", .epoch = 1, .local_world = 3})
          .status());
  RunRanks(3, [&](int rank) {
    auto place = *shm::ArenaPlace::Claim(directory.path(), rank);
    auto comm = *ShmComm::Create(*place, 1);
    Lockstep lockstep(*comm, absl::Seconds(60));
    if (rank != 1) {
      Exchange exchange = lockstep.With(2 - rank, 2);
      EXPECT_THAT(*exchange("a", absl::StrCat("of ", rank), absl::Seconds(1)),
                  ElementsAre("of 0", "of 2"));
      // Too much for one is nobody else's failure.
      const auto second = exchange("b", std::string(rank == 2 ? 5000 : 0, 'x'),
                                   absl::Seconds(1));
      EXPECT_EQ(second.status().code(), rank == 2
                                            ? absl::StatusCode::kInvalidArgument
                                            : absl::StatusCode::kUnavailable);
      EXPECT_THAT(exchange("c", "", absl::Seconds(1)),
                  StatusIs(absl::StatusCode::kInternal));
    }
    COHORT_EXPECT_OK(lockstep.ComeTo(3));
  });
}

}  // namespace
}  // namespace cohort::trainer
