// All-reduce of ranks on this machine's GPUs, from 4 B to 1 GiB, beside what
// the memory of a GPU can do at best in the same run.  See README.md.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"

#include "bench/report.h"
#include "common/status_macros.h"
#include "trainer/comm/comm.h"
#include "trainer/comm/gpu_rendezvous.h"
#include "trainer/comm/reduce_kernels.h"
#include "trainer/comm/testing/device_copier.h"
#include "trainer/comm/testing/gpu_machine.h"
#include "trainer/comm/testing/process_gang.h"

namespace cohort::bench {
namespace {

using Clock = std::chrono::steady_clock;
using trainer::Buffer;
using trainer::Comm;
using trainer::DeviceCopier;
using trainer::GpuMachine;
using trainer::ProcessGang;
using trainer::ReduceOp;
using trainer::ThisGpuMachine;

constexpr absl::Duration kDeadline = absl::Minutes(1);
constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;

// A way to all-reduce.
struct Backend {
  std::string name;
  // How many ranks there are to be, on this machine.
  std::vector<int> worlds;
  // Empty where it can run.
  std::string obstacle;
  // Even where there are enough for all.
  bool is_on_one_gpu = false;
  // In a rank's process; `ordinal` becomes the GPU that it takes.
  std::function<absl::StatusOr<std::unique_ptr<Comm>>(ProcessGang::Place&,
                                                      int* ordinal)>
      connect;
};

absl::StatusOr<std::unique_ptr<Comm>> ConnectNccl(ProcessGang::Place& place,
                                                  int* ordinal) {
  trainer::GpuCommOptions options = trainer::NcclOnThisMachine(
      ThisGpuMachine(), place.control.rank(), place.control.world());
  *ordinal = options.device;
  return trainer::ConnectGpuComm(std::move(options), place.control,
                                 place.exchange);
}

absl::StatusOr<std::unique_ptr<Comm>> ConnectIpc(ProcessGang::Place& place,
                                                 int* ordinal) {
  trainer::GpuCommOptions options = trainer::IpcOnThisMachine();
  *ordinal = options.device;
  return trainer::ConnectGpuComm(std::move(options), place.control,
                                 place.exchange);
}

std::vector<Backend> Backends(const GpuMachine& machine) {
  std::vector<int> worlds = {1, 2};
  if (machine.gpus.size() > 2) {
    worlds.push_back(static_cast<int>(machine.gpus.size()));
  }
  return {
      {.name = "nccl",
       .worlds = worlds,
       .obstacle = machine.no_nccl,
       .connect = ConnectNccl},
      {.name = "cuda_ipc",
       .worlds = {2, 4},
       .obstacle = trainer::ReduceKernels().empty() ? "built without nvcc" : "",
       .is_on_one_gpu = true,
       .connect = ConnectIpc}};
}

std::string SizeName(size_t bytes) {
  if (bytes >= kMiB) return absl::StrCat(bytes / kMiB, "MiB");
  if (bytes >= kKiB) return absl::StrCat(bytes / kKiB, "KiB");
  return absl::StrCat(bytes, "B");
}

std::vector<size_t> Sizes(const Flags& flags) {
  if (flags.quick) return {4, 64 * kKiB, kMiB, 25 * kMiB, 256 * kMiB};
  return {4,        kKiB,      16 * kKiB,  256 * kKiB, kMiB,
          4 * kMiB, 25 * kMiB, 100 * kMiB, 256 * kMiB, 1024 * kMiB};
}

bool SharesGpu(const Backend& backend, int world) {
  return backend.is_on_one_gpu || !ThisGpuMachine().HasGpuEach(world);
}

std::string FigureName(const Backend& backend, int world, size_t bytes) {
  const char* const where = world == 1                  ? "_rank/"
                            : SharesGpu(backend, world) ? "_ranks_on_one_gpu/"
                                                        : "_gpus/";
  return absl::StrCat(backend.name, "/", world, where, SizeName(bytes));
}

double MicrosecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start)
      .count();
}

// One rank of one gang.
class Rank {
 public:
  Rank(const Backend& backend, const Flags& flags, ProcessGang::Place& place)
      : backend_(backend), flags_(flags), place_(place) {}

  absl::Status Run() {
    int ordinal = 0;
    COHORT_ASSIGN_OR_RETURN(comm_, backend_.connect(place_, &ordinal));
    COHORT_ASSIGN_OR_RETURN(const auto driver, trainer::cuda::LoadDriver());
    COHORT_ASSIGN_OR_RETURN(copier_, DeviceCopier::Open(driver, ordinal));
    const std::vector<size_t> sizes = Sizes(flags_);
    COHORT_ASSIGN_OR_RETURN(memory_, comm_->Allocate(sizes.back()));
    Report report("gpu_allreduce", flags_);
    for (const size_t bytes : sizes) {
      COHORT_RETURN_IF_ERROR(Measure(bytes, report));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Measure(size_t bytes, Report& report) {
    COHORT_RETURN_IF_ERROR(CheckSum(bytes));
    Figure figure;
    figure.name = FigureName(backend_, comm_->world(), bytes);
    figure.unit = "us";
    const int runs = flags_.quick ? 5 : 7;
    const int operations = bytes <= kMiB ? 20 : bytes <= 100 * kMiB ? 5 : 2;
    for (int run = -1; run < runs; ++run) {  // the first one warms up
      COHORT_RETURN_IF_ERROR(comm_->Barrier(kDeadline));
      const Clock::time_point start = Clock::now();
      for (int i = 0; i < operations; ++i) {
        COHORT_RETURN_IF_ERROR(AllReduce(bytes, ReduceOp::kMax));
      }
      COHORT_ASSIGN_OR_RETURN(
          const double us, SlowerRank(MicrosecondsSince(start) / operations));
      if (run >= 0) figure.samples.values.push_back(us);
    }
    COHORT_ASSIGN_OR_RETURN(figure.floor, TimeFloor(bytes));
    if (comm_->rank() == 0) report.Add(figure);
    return absl::OkStatus();
  }

  absl::Status AllReduce(size_t bytes, ReduceOp op) {
    return comm_->AllReduce(
        {memory_.data(), bytes / sizeof(float), trainer::DType::kF32}, op,
        kDeadline);
  }

  // One sum of known values, of which both ends are read.
  absl::Status CheckSum(size_t bytes) {
    const size_t edge = std::min(bytes, 4 * kKiB);
    std::vector<float> values(edge / sizeof(float),
                              static_cast<float>(comm_->rank() + 1));
    std::byte* const last = memory_.data() + bytes - edge;
    for (std::byte* const at : {memory_.data(), last}) {
      COHORT_RETURN_IF_ERROR(copier_->Copy(at, values.data(), edge));
    }
    COHORT_RETURN_IF_ERROR(AllReduce(bytes, ReduceOp::kSum));
    const int world = comm_->world();
    const float sum = static_cast<float>(world * (world + 1)) / 2;
    for (const std::byte* const at : {memory_.data(), last}) {
      COHORT_RETURN_IF_ERROR(copier_->Copy(values.data(), at, edge));
      const auto wrong = std::find_if(values.begin(), values.end(),
                                      [&](float v) { return v != sum; });
      if (wrong == values.end()) continue;
      return absl::DataLossError(absl::StrCat(
          backend_.name, ", ", bytes, " bytes: ", *wrong, ", not ", sum));
    }
    return absl::OkStatus();
  }

  // The GPU's own copy (cuMemcpyDtoD) of as many bytes as it must read and
  // write: of all ranks that share it, of one where each has its own, of none
  // for a rank alone.  Nothing when there is no memory for that.
  absl::StatusOr<std::optional<double>> TimeFloor(size_t bytes) {
    std::optional<double> us;
    if (comm_->rank() == 0) {
      const int world = comm_->world();
      us = TimeCopy(world == 1                   ? 0
                    : SharesGpu(backend_, world) ? bytes * world
                                                 : bytes);
    }
    COHORT_RETURN_IF_ERROR(comm_->Barrier(kDeadline));
    return us;
  }

  std::optional<double> TimeCopy(size_t bytes) {
    const trainer::cuda::Device& device = copier_->device();
    const auto memory = device.Allocate(std::max<size_t>(2 * bytes, 1));
    if (!memory.ok()) return std::nullopt;
    auto* const from = reinterpret_cast<std::byte*>(*memory);
    Samples copies;
    for (int i = -1; i < 7; ++i) {
      const Clock::time_point start = Clock::now();
      if (!copier_->Copy(from + bytes, from, bytes).ok()) break;
      if (i >= 0) copies.values.push_back(MicrosecondsSince(start));
    }
    device.Free(*memory);
    if (copies.values.empty()) return std::nullopt;
    return copies.median();
  }

  absl::StatusOr<double> SlowerRank(double us) {
    COHORT_RETURN_IF_ERROR(comm_->AllReduce(Buffer::Of(std::span(&us, 1)),
                                            ReduceOp::kMax, kDeadline));
    return us;
  }

  const Backend& backend_;
  const Flags& flags_;
  ProcessGang::Place& place_;
  std::unique_ptr<Comm> comm_;
  std::unique_ptr<DeviceCopier> copier_;
  std::span<std::byte> memory_;
};

// False when it failed.
bool RunGang(const Backend& backend, int world, const Flags& flags) {
  absl::Status ended;
  auto gang = ProcessGang::Start(world, [&](ProcessGang::Place& place) {
    return Rank(backend, flags, place).Run();
  });
  ended = gang.ok() ? (*gang)->EndAll(absl::Minutes(5)) : gang.status();
  if (ended.ok()) return true;
  std::fprintf(stderr, "bench_gpu_allreduce: %s, %d rank(s): %s\n",
               backend.name.c_str(), world, ended.ToString().c_str());
  return false;
}

void LeaveAll(const Backend& backend, const std::string& why,
              const Flags& flags) {
  Report report("gpu_allreduce", flags);
  for (const int world : backend.worlds) {
    for (const size_t bytes : Sizes(flags)) {
      report.Leave(FigureName(backend, world, bytes), "us", why);
    }
  }
}

int Main(int argc, char** argv) {
  const Flags flags = ParseFlags(argc, argv);
  const GpuMachine& machine = ThisGpuMachine();
  bool has_run = false;
  bool has_failed = false;
  std::vector<std::string> obstacles;
  for (const Backend& backend : Backends(machine)) {
    const std::string& why =
        machine.no_gpu.empty() ? backend.obstacle : machine.no_gpu;
    if (!why.empty()) {
      obstacles.push_back(absl::StrCat(backend.name, ": ", why));
      LeaveAll(backend, why, flags);
      continue;
    }
    for (const int world : backend.worlds) {
      has_run = true;
      has_failed |= !RunGang(backend, world, flags);
    }
  }
  if (!machine.no_gpu.empty()) return Skip("gpu_allreduce", machine.no_gpu);
  if (!has_run) return Skip("gpu_allreduce", absl::StrJoin(obstacles, "; "));
  return has_failed ? 125 : 0;
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) { return cohort::bench::Main(argc, argv); }
