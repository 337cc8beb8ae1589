#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

#include "common/check.h"
#include "common/mutex.h"
#include "common/testing/temp_dir.h"
#include "shm/arena.h"
#include "trainer/comm/gpu_comm.h"
#include "trainer/comm/gpu_context.h"
#include "trainer/comm/gpu_end.h"
#include "trainer/comm/gpu_rendezvous.h"
#include "trainer/comm/nccl_library.h"
#include "trainer/comm/shm_comm.h"
#include "trainer/comm/testing/fake_nccl.h"
#include "trainer/comm/testing/fake_reduce.h"
#include "trainer/comm/testing/ranks.h"
#include "trainer/cuda/driver.h"
#include "trainer/cuda/lookup.h"
#include "trainer/cuda/testing/fake_driver.h"

namespace cohort::trainer {

// A gang of ranks that are threads, each with a fake driver and a fake NCCL of
// its own process, over shared memory.  Thread-safe, a rank's part from its own
// thread; outlives the communicators.
class GpuWorld {
 public:
  static constexpr uint64_t kEpoch = 2;
  static constexpr int kVersion = 22809;

  // A GPU for each rank.
  explicit GpuWorld(int world, int version = kVersion)
      : GpuWorld(EachItsOwn(world), version) {}
  // Rank i on GPU gpus[i].
  explicit GpuWorld(const std::vector<int>& gpus, int version = kVersion)
      : exchange_(static_cast<int>(gpus.size())) {
    const int world = static_cast<int>(gpus.size());
    const auto arena = shm::Arena::Create(
        directory_.path(),
        {.attempt = "gpu-world", .epoch = kEpoch, .local_world = world});
    COHORT_CHECK(arena.ok()) << arena.status();
    for (const int gpu : gpus) {
      ranks_.push_back(std::make_unique<Rank>(fabric_, gpu, version));
    }
  }
  ~GpuWorld() {
    // Whatever still hangs or is held would keep a communicator from closing.
    fabric_.Resume();
  }

  int size() const { return static_cast<int>(ranks_.size()); }
  nccl::FakeFabric& fabric() { return fabric_; }
  cuda::FakeDriver& driver(int rank) { return ranks_[rank]->driver; }
  nccl::FakeNccl& nccl(int rank) { return ranks_[rank]->nccl; }
  MemoryExchange& exchange() { return exchange_; }

  // What each rank connects with, as a machine has it: "dlopen" fails and hangs
  // as all calls do.  A hang ends when the process is "killed".
  GpuCommOptions Options(int rank) {
    return {.driver = FindDriver(driver(rank)),
            .nccl = FindNccl(nccl(rank)),
            .kernels = kKernels,
            .kill = [this, rank](absl::string_view why) { Kill(rank, why); },
            .tell =
                [this, rank](const GpuEnd& end) {
                  MutexLock lock(mutex_);
                  ranks_[rank]->ends.push_back(end);
                }};
  }

  // The host communicator under rank `rank`'s GPU.
  absl::StatusOr<Comm*> Host(int rank) {
    auto place = shm::ArenaPlace::Claim(directory_.path(), rank);
    if (!place.ok()) return place.status();
    ranks_[rank]->place = *std::move(place);
    auto host = ShmComm::Create(*ranks_[rank]->place, kEpoch);
    if (!host.ok()) return host.status();
    ranks_[rank]->host = *std::move(host);
    return ranks_[rank]->host.get();
  }
  // As if its process had ended.
  void Leave(int rank) {
    ranks_[rank]->host.reset();
    ranks_[rank]->place.reset();
  }

  absl::StatusOr<std::unique_ptr<GpuComm>> Join(int rank,
                                                GpuCommOptions options) {
    auto host = Host(rank);
    if (!host.ok()) return host.status();
    Exchange exchange = exchange_.For(rank);
    return ConnectGpuComm(std::move(options), **host, exchange);
  }
  absl::StatusOr<std::unique_ptr<GpuComm>> Join(int rank) {
    return Join(rank, Options(rank));
  }

  // Runs `body` on each rank, connected; `change` makes its options others.
  void Run(const std::function<void(int, GpuComm&)>& body,
           const std::function<void(GpuCommOptions&)>& change = nullptr) {
    RunRanks(size(), [&](int rank) {
      GpuCommOptions options = Options(rank);
      if (change) change(options);
      auto comm = Join(rank, std::move(options));
      ASSERT_TRUE(comm.ok()) << comm.status();
      body(rank, **comm);
    });
  }

  // Returns when `rank` has launched `times` operations.
  void AwaitLaunch(int rank, int times = 1) {
    while (nccl(rank).faults().Count("ncclGroupEnd") < times) {
      std::this_thread::yield();
    }
  }

  // Whatever happened: one thread made all calls, none was forbidden, and
  // nothing is held any more.
  void ExpectClean() {
    for (int rank = 0; rank < size(); ++rank) {
      SCOPED_TRACE(absl::StrCat("rank ", rank));
      EXPECT_EQ(driver(rank).device_bytes(), 0u);
      EXPECT_EQ(driver(rank).pinned_bytes(), 0u);
      EXPECT_EQ(driver(rank).streams(), 0);
      EXPECT_EQ(driver(rank).events(), 0);
      EXPECT_EQ(driver(rank).contexts(), 0);
      EXPECT_EQ(driver(rank).opened(), 0u);
      EXPECT_EQ(driver(rank).modules(), 0);
      EXPECT_EQ(driver(rank).misuses(), 0) << "CI-4";
      EXPECT_LE(driver(rank).faults().threads(), 1u) << "NC-1";
      EXPECT_EQ(nccl(rank).communicators(), 0u);
      EXPECT_EQ(nccl(rank).misuses(), 0);
    }
  }

  // The abort levels that a rank told of.
  std::vector<GpuEnd> ends(int rank) {
    MutexLock lock(mutex_);
    return ranks_[rank]->ends;
  }

  // What the last level was called with, by rank.
  std::vector<std::string> kills(int rank) {
    MutexLock lock(mutex_);
    return ranks_[rank]->kills;
  }

 private:
  struct Rank {
    Rank(nccl::FakeFabric& fabric, int gpu, int version)
        : driver({.uuid_byte = static_cast<char>(gpu + 1)}),
          nccl(fabric, version) {
      AddReduceKernels(driver);
    }

    cuda::FakeDriver driver;
    nccl::FakeNccl nccl;
    std::unique_ptr<shm::ArenaPlace> place;
    std::unique_ptr<Comm> host;
    std::vector<std::string> kills;
    std::vector<GpuEnd> ends;
  };

  // Any bytes: the fake driver knows its kernels by name.
  static constexpr std::byte kKernels[1] = {};

  static cuda::Lookup<cuda::DriverTable> FindDriver(cuda::FakeDriver& driver) {
    using Lookup = cuda::Lookup<cuda::DriverTable>;
    return Lookup::By([&driver](cuda::BeforeCall before) -> Lookup::Answer {
      before("dlopen of the CUDA driver");
      if (driver.faults().Enter("dlopen")) {
        return absl::FailedPreconditionError("no CUDA driver: dlopen failed");
      }
      const absl::Status is_usable = cuda::InitDriver(*driver.table(), before);
      if (!is_usable.ok()) return is_usable;
      return driver.table();
    });
  }
  static cuda::Lookup<nccl::Library> FindNccl(nccl::FakeNccl& nccl) {
    using Lookup = cuda::Lookup<nccl::Library>;
    return Lookup::By([&nccl](cuda::BeforeCall before) -> Lookup::Answer {
      before("dlopen of NCCL");
      if (nccl.faults().Enter("dlopen")) {
        return absl::FailedPreconditionError("no NCCL: dlopen failed");
      }
      return nccl::MakeLibrary(nccl.table(), "fake", before);
    });
  }

  static std::vector<int> EachItsOwn(int world) {
    std::vector<int> gpus(world);
    std::iota(gpus.begin(), gpus.end(), 0);
    return gpus;
  }

  void Kill(int rank, absl::string_view why) {
    {
      MutexLock lock(mutex_);
      ranks_[rank]->kills.emplace_back(why);
    }
    fabric_.Resume();
    driver(rank).faults().Release();
    nccl(rank).faults().Release();
  }

  const TempDir directory_;
  nccl::FakeFabric fabric_;
  MemoryExchange exchange_;
  Mutex mutex_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

// Deadlines that a test can wait for.
inline void UseShortTimeouts(GpuCommOptions& options) {
  options.deadlines.quiet = absl::Milliseconds(200);
  options.deadlines.revoke = absl::Milliseconds(100);
  options.deadlines.finish = absl::Milliseconds(200);
  options.deadlines.memory = absl::Milliseconds(200);
}

}  // namespace cohort::trainer
