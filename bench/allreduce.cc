// All-reduce between two processes of one node: shared memory beside Gloo, in
// the same run, interleaved.  See README.md for what the figures mean.

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#ifdef COHORT_HAVE_GLOO
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "trainer/comm/gloo_comm.h"
#endif

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "bench/report.h"
#include "common/status_macros.h"
#include "shm/arena.h"
#include "trainer/comm/comm.h"
#include "trainer/comm/shm_comm.h"
#include "trainer/comm/testing/exchange_over.h"

namespace cohort::bench {
namespace {

using Clock = std::chrono::steady_clock;
using trainer::Buffer;
using trainer::Comm;
using trainer::ReduceOp;

constexpr int kWorld = 2;
constexpr uint64_t kEpoch = 1;
constexpr absl::Duration kDeadline = absl::Seconds(60);
constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;

enum class Regime { kHot, kTraining };

double MicrosecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start)
      .count();
}

std::string SizeName(size_t bytes) {
  if (bytes >= kMiB) return absl::StrCat(bytes / kMiB, "MiB");
  if (bytes >= kKiB) return absl::StrCat(bytes / kKiB, "KiB");
  return absl::StrCat(bytes, "B");
}

// As PyTorch cuts gradients for NCCL: 1 MiB first, then 25 MiB each.
std::vector<Buffer> CutForNccl(std::span<float> values) {
  constexpr size_t kFirst = kMiB / sizeof(float);
  std::vector<Buffer> parts;
  while (!values.empty()) {
    const size_t limit = parts.empty() ? kFirst : 25 * kFirst;
    const size_t count = std::min(values.size(), limit);
    parts.push_back(Buffer::Of(values.first(count)));
    values = values.subspan(count);
  }
  return parts;
}

// What both processes see apart from the communicators.
struct alignas(64) Lines {
  struct alignas(64) Line {
    std::atomic<uint64_t> count;
  };
  std::array<Line, kWorld> line;
};

// One way to all-reduce a buffer of floats in place.
struct Contender {
  std::string name;
  std::span<float> values;
  std::function<absl::Status(std::span<float>)> all_reduce;
};

// The values of `rank` before operation `round`, and their sum: small integers
// times a power of two, so that every sum is exact.
float Input(int rank, size_t index, int round) {
  return static_cast<float>((rank + 1) * ((index + round) % 1021 + 1));
}
float SumOfInputs(size_t index, int round) {
  return Input(0, index, round) + Input(1, index, round);
}

// The part of the bench that a rank is.
class Rank {
 public:
  Rank(int rank, std::string directory, Lines& lines)
      : rank_(rank), directory_(std::move(directory)), lines_(lines) {}

  absl::Status Join() {
    COHORT_ASSIGN_OR_RETURN(
        place_,
        shm::ArenaPlace::Claim(absl::StrCat(directory_, "/arena"), rank_));
    COHORT_ASSIGN_OR_RETURN(shm_, trainer::ShmComm::Create(*place_, kEpoch));
    return JoinGloo();
  }

  absl::Status Run(const Flags& flags) {
    Report report("allreduce", flags);
    const std::vector<size_t> sizes =
        flags.quick ? std::vector<size_t>{4, 64 * kKiB, kMiB, 25 * kMiB}
                    : std::vector<size_t>{4,         kKiB,       16 * kKiB,
                                          64 * kKiB, 256 * kKiB, kMiB,
                                          4 * kMiB,  25 * kMiB,  100 * kMiB};
    COHORT_ASSIGN_OR_RETURN(const std::span<float> shared,
                            AllocateFloats(*shm_, sizes.back()));
    COHORT_RETURN_IF_ERROR(MapPeer(shared));
    private_.resize(shared.size());
    for (const Regime regime : {Regime::kHot, Regime::kTraining}) {
      for (const size_t bytes : sizes) {
        COHORT_RETURN_IF_ERROR(Measure(regime, bytes, shared, flags, report));
      }
    }
    return absl::OkStatus();
  }

 private:
  static absl::StatusOr<std::span<float>> AllocateFloats(Comm& comm,
                                                         size_t bytes) {
    COHORT_ASSIGN_OR_RETURN(const std::span<std::byte> memory,
                            comm.Allocate(bytes));
    return std::span(reinterpret_cast<float*>(memory.data()),
                     bytes / sizeof(float));
  }

  // Both ranks allocate alike, so the peer's buffer lies where ours does.
  absl::Status MapPeer(std::span<float> shared) {
    const auto location = place_->Locate(shared.data(), shared.size_bytes());
    if (!location) return absl::InternalError("buffer outside the arena");
    COHORT_RETURN_IF_ERROR(shm_->Barrier(kDeadline));
    COHORT_ASSIGN_OR_RETURN(
        std::byte* const view,
        place_->MapPeer(1 - rank_, *location, shared.size_bytes()));
    peer_ = std::span(reinterpret_cast<float*>(view), shared.size());
    return absl::OkStatus();
  }

  absl::Status JoinGloo();
  std::vector<Contender> Contenders(size_t count, std::span<float> shared);

  absl::Status Measure(Regime regime, size_t bytes, std::span<float> shared,
                       const Flags& flags, Report& report) {
    const size_t count = bytes / sizeof(float);
    std::vector<Contender> contenders = Contenders(count, shared);
    std::vector<Samples> samples(contenders.size());
    Samples floor;
    const int runs = flags.quick ? 5 : bytes < 25 * kMiB ? 15 : 7;
    for (int run = -1; run < runs; ++run) {  // the first one warms up
      for (size_t i = 0; i < contenders.size(); ++i) {
        COHORT_ASSIGN_OR_RETURN(const double us,
                                TimeRun(regime, contenders[i]));
        if (run >= 0) samples[i].values.push_back(us);
      }
      COHORT_ASSIGN_OR_RETURN(const double us,
                              TimeFloor(regime, shared.first(count)));
      if (run >= 0) floor.values.push_back(us);
    }
    if (rank_ == 0) Print(regime, bytes, contenders, samples, floor, report);
    return absl::OkStatus();
  }

  static void Print(Regime regime, size_t bytes,
                    const std::vector<Contender>& contenders,
                    const std::vector<Samples>& samples, const Samples& floor,
                    Report& report) {
    Figure figure;
    for (size_t i = 0; i < contenders.size(); ++i) {
      if (!contenders[i].name.starts_with("gloo-")) continue;
      const double median = samples[i].median();
      if (figure.peer_value && *figure.peer_value <= median) continue;
      figure.peer_value = median;
      figure.peer = contenders[i].name;
    }
    for (size_t i = 0; i < contenders.size(); ++i) {
      if (contenders[i].name.starts_with("gloo-")) continue;
      figure.name = absl::StrCat(
          contenders[i].name, regime == Regime::kHot ? "/hot/" : "/training/",
          SizeName(bytes));
      figure.samples = samples[i];
      figure.unit = "us";
      figure.floor = floor.median();
      report.Add(figure);
    }
  }

  // Enough operations in a run for the clock, few enough for exact floats: hot
  // sums double with every operation.
  static int Operations(size_t bytes) {
    if (bytes <= 64 * kKiB) return 100;
    if (bytes <= kMiB) return 40;
    return bytes <= 4 * kMiB ? 10 : 3;
  }

  // Microseconds an operation, of the slower rank: the mean of a hot run, which
  // is timed as a whole, the median where each operation is timed.
  absl::StatusOr<double> TimeRun(Regime regime, const Contender& contender) {
    const std::span<float> values = contender.values;
    const int operations = Operations(values.size_bytes());
    if (regime == Regime::kHot) {
      Fill(values, 0, std::ldexp(1.0f, -50));
      COHORT_RETURN_IF_ERROR(shm_->Barrier(kDeadline));
      const Clock::time_point start = Clock::now();
      for (int i = 0; i < operations; ++i) {
        COHORT_RETURN_IF_ERROR(contender.all_reduce(values));
      }
      const double us = MicrosecondsSince(start);
      COHORT_RETURN_IF_ERROR(
          Check(contender, 0, std::ldexp(1.0f, operations - 1 - 50)));
      return SlowerRank(us / operations);
    }
    Samples each;
    for (int i = 0; i < operations; ++i) {
      Fill(values, i, 1.0f);
      COHORT_RETURN_IF_ERROR(shm_->Barrier(kDeadline));
      const Clock::time_point start = Clock::now();
      COHORT_RETURN_IF_ERROR(contender.all_reduce(values));
      each.values.push_back(MicrosecondsSince(start));
      COHORT_RETURN_IF_ERROR(Check(contender, i, 1.0f));
    }
    return SlowerRank(each.median());
  }

  // What no all-reduce of two ranks in place can be faster than: a cache line
  // from core to core, and each core reading and writing its half in both
  // buffers.
  absl::StatusOr<double> TimeFloor(Regime regime, std::span<float> mine) {
    const size_t half = (mine.size_bytes() + 1) / 2;
    const size_t offset = rank_ == 0 ? 0 : mine.size_bytes() - half;
    std::byte* const own = reinterpret_cast<std::byte*>(mine.data()) + offset;
    std::byte* const peer = reinterpret_cast<std::byte*>(peer_.data()) + offset;
    const int operations = Operations(mine.size_bytes());
    Samples copies;
    for (int i = 0; i < operations; ++i) {
      if (regime == Regime::kTraining) Fill(mine, i, 1.0f);
      if (regime == Regime::kTraining || i == 0) {
        COHORT_RETURN_IF_ERROR(shm_->Barrier(kDeadline));
      }
      const Clock::time_point start = Clock::now();
      CopyThereAndBack(own, peer, half);
      copies.values.push_back(MicrosecondsSince(start));
    }
    COHORT_ASSIGN_OR_RETURN(const double line_us, TimeLine());
    return SlowerRank(copies.median() + line_us);
  }

  // In tiles that stay in the cache, so that memory moves once each way.
  static void CopyThereAndBack(std::byte* own, std::byte* peer, size_t bytes) {
    constexpr size_t kTile = 16 * kKiB;
    for (size_t at = 0; at < bytes; at += kTile) {
      const size_t tile = std::min(kTile, bytes - at);
      std::memcpy(own + at, peer + at, tile);
      // Or the compiler would drop the copy back.
      asm volatile("" : : "r"(own), "r"(peer) : "memory");
      std::memcpy(peer + at, own + at, tile);
    }
  }

  // One way from core to core, both spinning.  The best of many short games:
  // one that meets a busy core measures the scheduler.
  absl::StatusOr<double> TimeLine() {
    constexpr int kGames = 50;
    constexpr uint64_t kTurns = 10;
    COHORT_RETURN_IF_ERROR(shm_->Barrier(kDeadline));
    std::atomic<uint64_t>& own = lines_.line[rank_].count;
    std::atomic<uint64_t>& other = lines_.line[1 - rank_].count;
    uint64_t turn = own.load();
    Samples games;
    for (int game = 0; game < kGames; ++game) {
      const Clock::time_point start = Clock::now();
      for (uint64_t i = 0; i < kTurns; ++i) {
        ++turn;
        if (rank_ == 0) own.store(turn, std::memory_order_release);
        while (other.load(std::memory_order_acquire) < turn) {
        }
        if (rank_ == 1) own.store(turn, std::memory_order_release);
      }
      games.values.push_back(MicrosecondsSince(start) / (2 * kTurns));
    }
    return games.min();
  }

  absl::StatusOr<double> SlowerRank(double us) {
    COHORT_RETURN_IF_ERROR(shm_->AllReduce(Buffer::Of(std::span(&us, 1)),
                                           ReduceOp::kMax, kDeadline));
    return us;
  }

  void Fill(std::span<float> values, int round, float scale) const {
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = Input(rank_, i, round) * scale;
    }
  }

  static absl::Status Check(const Contender& contender, int round,
                            float scale) {
    for (size_t i = 0; i < contender.values.size(); ++i) {
      if (contender.values[i] == SumOfInputs(i, round) * scale) continue;
      return absl::DataLossError(
          absl::StrCat(contender.name, ": element ", i, " of ",
                       contender.values.size(), " is ", contender.values[i],
                       ", not ", SumOfInputs(i, round) * scale));
    }
    return absl::OkStatus();
  }

  const int rank_;
  const std::string directory_;
  Lines& lines_;
  std::unique_ptr<shm::ArenaPlace> place_;
  std::unique_ptr<trainer::ShmComm> shm_;
  // Gloo's buffer, and the peer's view of the shared one.
  std::vector<float> private_;
  std::span<float> peer_;
#ifdef COHORT_HAVE_GLOO
  std::unique_ptr<Comm> gloo_comm_;
  std::shared_ptr<gloo::rendezvous::Context> gloo_;
#endif
};

#ifdef COHORT_HAVE_GLOO

absl::Status Rank::JoinGloo() {
  trainer::Exchange exchange = trainer::ExchangeOver(*shm_);
  COHORT_ASSIGN_OR_RETURN(
      gloo_comm_,
      trainer::ConnectGloo({.rank = rank_, .world = kWorld, .epoch = kEpoch},
                           exchange));
  gloo::transport::tcp::attr attr;
  attr.hostname = "127.0.0.1";
  std::shared_ptr<gloo::transport::Device> device =
      gloo::transport::tcp::CreateDevice(attr);
  gloo::rendezvous::FileStore store(absl::StrCat(directory_, "/gloo"));
  gloo_ = std::make_shared<gloo::rendezvous::Context>(rank_, kWorld);
  gloo_->connectFullMesh(store, device);
  return absl::OkStatus();
}

absl::Status GlooAllReduce(
    const std::shared_ptr<gloo::rendezvous::Context>& context,
    gloo::AllreduceOptions::Algorithm algorithm, std::span<float> values) {
  gloo::AllreduceOptions options(context);
  options.setAlgorithm(algorithm);
  options.setOutput(values.data(), values.size());
  void (*sum)(void*, const void*, const void*, size_t) = &gloo::sum<float>;
  options.setReduceFunction(sum);
  gloo::allreduce(options);
  return absl::OkStatus();
}

#else

absl::Status Rank::JoinGloo() { return absl::OkStatus(); }

#endif

std::function<absl::Status(std::span<float>)> InParts(Comm& comm) {
  return [&comm](std::span<float> values) {
    return comm.AllReduce(CutForNccl(values), ReduceOp::kSum, kDeadline);
  };
}

std::vector<Contender> Rank::Contenders(size_t count, std::span<float> shared) {
  std::vector<Contender> contenders;
  contenders.push_back(
      {"shm", shared.first(count), [this](std::span<float> values) {
         return shm_->AllReduce(Buffer::Of(values), ReduceOp::kSum, kDeadline);
       }});
  if (CutForNccl(contenders[0].values).size() > 1) {
    contenders.push_back({"shm_parts", shared.first(count), InParts(*shm_)});
  }
#ifdef COHORT_HAVE_GLOO
  const std::span<float> own = std::span(private_).first(count);
  contenders.push_back({"gloo_comm", own, [this](std::span<float> values) {
                          return gloo_comm_->AllReduce(
                              Buffer::Of(values), ReduceOp::kSum, kDeadline);
                        }});
  if (CutForNccl(own).size() > 1) {
    contenders.push_back({"gloo_comm_parts", own, InParts(*gloo_comm_)});
  }
  using Algorithm = gloo::AllreduceOptions::Algorithm;
  for (const auto& [name, algorithm] :
       {std::pair{"gloo-ring", Algorithm::RING},
        std::pair{"gloo-bcube", Algorithm::BCUBE}}) {
    contenders.push_back(
        {name, own, [this, algorithm = algorithm](std::span<float> values) {
           return GlooAllReduce(gloo_, algorithm, values);
         }});
  }
#endif
  return contenders;
}

absl::Status RunRank(int rank, const std::string& directory, Lines& lines,
                     const Flags& flags) {
  Rank self(rank, directory, lines);
  COHORT_RETURN_IF_ERROR(self.Join());
  return self.Run(flags);
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "bench_allreduce: %s\n", status.ToString().c_str());
  return 125;
}

int Main(int argc, char** argv) {
  const Flags flags = ParseFlags(argc, argv);
  void* const memory = mmap(nullptr, sizeof(Lines), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return Fail(absl::InternalError("mmap"));
  auto& lines = *static_cast<Lines*>(memory);

  std::string directory = "/dev/shm/cohort-bench-XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) {
    return Fail(absl::InternalError("no directory in /dev/shm"));
  }
  std::filesystem::create_directory(directory + "/arena");
  std::filesystem::create_directory(directory + "/gloo");
  const auto arena = shm::Arena::Create(
      directory + "/arena",
      {.attempt = "bench", .epoch = kEpoch, .local_world = kWorld});
  int code = arena.ok() ? 0 : Fail(arena.status());
  if (arena.ok()) {
    const pid_t child = fork();
    const absl::Status done =
        RunRank(child == 0 ? 1 : 0, directory, lines, flags);
    if (child == 0) _exit(done.ok() ? 0 : Fail(done));
    code = done.ok() ? 0 : Fail(done);
    if (!done.ok()) (*arena)->Revoke(kEpoch);
    int status = 0;
    waitpid(child, &status, 0);
    if (code == 0 && status != 0) code = 125;
  }
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
  return code;
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) { return cohort::bench::Main(argc, argv); }
