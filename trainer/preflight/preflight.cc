#include "trainer/preflight/preflight.h"

#include <algorithm>
#include <span>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "common/file.h"
#include "common/printable_text.h"
#include "common/real_clock.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "trainer/comm/gather.h"
#include "trainer/comm/shm_comm.h"
#include "trainer/preflight/network_interface.h"
#include "trainer/preflight/tournament.h"
#ifdef COHORT_HAVE_GLOO
#include "trainer/comm/gloo_comm.h"
#endif

namespace cohort::trainer {
namespace {

// Exchanges that two ranks need to connect: Gloo's two, GPUs' one.
constexpr int kHostSteps = 2;
constexpr int kGpuSteps = kHostSteps + 1;
constexpr int kSmallRepetitions = 10;
constexpr size_t kFactsBytesMax = 512;
constexpr size_t kErrorBytesMax = 256;

absl::Duration Now() { return MachineClock().Monotonic(); }
absl::Duration Left(absl::Duration until) {
  return std::max(until - Now(), absl::Milliseconds(1));
}

// The shortest of `times` all-reduces: whatever else happens only adds to it.
absl::StatusOr<absl::Duration> BestOf(int times, Comm& comm,
                                      const Buffer& buffer,
                                      absl::Duration until) {
  absl::Duration best = absl::InfiniteDuration();
  for (int i = 0; i < times; ++i) {
    const absl::Duration began = Now();
    COHORT_RETURN_IF_ERROR(comm.AllReduce(buffer, ReduceOp::kSum, Left(until)));
    best = std::min(best, Now() - began);
  }
  return best;
}

// That the sum over all ranks is one.
absl::Status CheckSum(Comm& comm, absl::Duration until) {
  const int64_t world = comm.world();
  int64_t sum = comm.rank() + 1;
  COHORT_RETURN_IF_ERROR(comm.AllReduce(Buffer::Of(std::span(&sum, 1)),
                                        ReduceOp::kSum, Left(until)));
  if (sum == world * (world + 1) / 2) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("the sum of 1 to ", world, " over the ranks came to ", sum));
}

absl::StatusOr<LinkFigures> Measure(Comm& comm, size_t bytes, int repetitions,
                                    absl::Duration until) {
  COHORT_RETURN_IF_ERROR(CheckSum(comm, until));
  COHORT_ASSIGN_OR_RETURN(const std::span<std::byte> memory,
                          comm.Allocate(bytes));
  const Buffer small = {memory.data(), 1, DType::kF32};
  const Buffer large = {memory.data(), bytes / sizeof(float), DType::kF32};
  COHORT_ASSIGN_OR_RETURN(const absl::Duration latency,
                          BestOf(kSmallRepetitions, comm, small, until));
  // The first one finds everything cold, and is counted out by the others.
  COHORT_ASSIGN_OR_RETURN(const absl::Duration took,
                          BestOf(repetitions, comm, large, until));
  const double world = comm.world();
  const double moved = 2 * (world - 1) / world * static_cast<double>(bytes);
  return LinkFigures{
      .latency_us = absl::ToDoubleMicroseconds(latency),
      .gigabytes_per_second = moved / absl::ToDoubleNanoseconds(took)};
}

// Some of the first need more than one of many: rounds of a few ranks have this
// in all.
constexpr absl::Duration kRoundsMin = absl::Seconds(20);
// Two communicators of GPUs made, used and left.
constexpr absl::Duration kGpuRound = absl::Seconds(2);

}  // namespace

absl::Duration PreflightLimits::rounds(int world) const {
  return std::min(rounds_max,
                  std::max(kRoundsMin, RoundsOf(world) * kGpuRound));
}

Preflight::Preflight(PreflightOptions options, Exchange& exchange)
    : options_(std::move(options)), exchange_(exchange), began_(Now()) {
  report_.world = options_.place.world;
  report_.nodes = options_.place.node_count;
}

Preflight::~Preflight() = default;

void Preflight::RevokeFor(const absl::Status& why) {
  if (absl::IsDeadlineExceeded(why)) return;
  if (all_ != nullptr) return all_->Revoke();
  if (place_ != nullptr) place_->arena().Revoke(place_->arena().epoch());
}

absl::StatusOr<PreflightReport> Preflight::Run() {
  COHORT_RETURN_IF_ERROR(options_.place.world > 1 ? RunTogether() : RunAlone());
  report_.seconds = absl::ToDoubleSeconds(Now() - began_);
  return report_;
}

absl::Status Preflight::RunAlone() {
  RankFacts& facts = report_.ranks.emplace_back();
  facts.host = options_.host;
  if (options_.gpus.has_value()) facts.no_gpu = TakeOwnGpus();
  return absl::OkStatus();
}

absl::Status Preflight::RunTogether() {
  report_.transport = on_one_node() ? "shared memory" : "Gloo";
  const std::string over = absl::StrCat(" over ", report_.transport);
  COHORT_RETURN_IF_ERROR(Annotate(Connect(), absl::StrCat("meeting", over)));
  COHORT_RETURN_IF_ERROR(
      Annotate(GatherFacts(), absl::StrCat("telling where they are", over)));
  if (options_.gpus.has_value()) {
    const absl::StatusOr<bool> all_can = TakeGpus();
    COHORT_RETURN_IF_ERROR(Annotate(all_can.status(), "taking their GPUs"));
    // Nothing that is measured would change the judgement.
    if (!*all_can) return absl::OkStatus();
  }
  COHORT_RETURN_IF_ERROR(
      Annotate(MeasureAll(), absl::StrCat("all together", over)));
  if (options_.gpus.has_value()) {
    COHORT_RETURN_IF_ERROR(
        Annotate(MeasureAllOnGpus(), "all together on GPUs"));
  }
  COHORT_RETURN_IF_ERROR(MeasurePairs());
  COHORT_RETURN_IF_ERROR(MeasureSlowOnesAgain());
  return Annotate(GatherErrors(), absl::StrCat("telling what failed", over));
}

// ---- all ranks ----

absl::Status Preflight::Connect() {
  if (!on_one_node()) return ConnectOverNodes();
  COHORT_ASSIGN_OR_RETURN(
      place_,
      shm::ArenaPlace::Claim(options_.directory, options_.place.local_rank));
  COHORT_ASSIGN_OR_RETURN(
      all_,
      ShmComm::Create(*place_, static_cast<uint64_t>(options_.place.epoch)));
  return all_->Barrier(options_.limits.join);
}

absl::Status Preflight::ConnectOverNodes() {
#ifdef COHORT_HAVE_GLOO
  absl::StatusOr<std::unique_ptr<Comm>> connected =
      ConnectGloo({.rank = options_.place.rank,
                   .world = options_.place.world,
                   .epoch = static_cast<uint64_t>(options_.place.epoch),
                   .hostname = options_.host,
                   .connect_deadline = options_.limits.join},
                  exchange_);
  if (connected.ok()) {
    all_ = *std::move(connected);
    return absl::OkStatus();
  }
  // Gloo names addresses.  Who does not come to this either is named by the
  // head, which sees who gave what.
  exchange_("who", "", options_.limits.pair).status().IgnoreError();
  return connected.status();
#else
  return absl::FailedPreconditionError(
      "the gang is spread over several nodes, and cohort-preflight was built "
      "without Gloo");
#endif
}

absl::Status Preflight::MeasureAll() {
  COHORT_ASSIGN_OR_RETURN(
      report_.all_host,
      Measure(*all_, options_.limits.host_bytes, options_.limits.repetitions,
              Now() + options_.limits.meeting()));
  return absl::OkStatus();
}

absl::StatusOr<bool> Preflight::TakeGpus() {
  const std::string mine = TakeOwnGpus();
  // Who waits in a call is told of by its watch before.
  COHORT_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      GatherBlobs(*all_, mine, kErrorBytesMax,
                  options_.limits.gpu_call + options_.limits.meeting()));
  bool all_can = true;
  for (int rank = 0; rank < world(); ++rank) {
    report_.ranks[rank].no_gpu = all[rank];
    all_can = all_can && all[rank].empty();
  }
  return all_can;
}

std::string Preflight::TakeOwnGpus() {
  const auto names = OpenGpus(
      *options_.gpus, options_.limits.gpu_call, [this](absl::string_view why) {
        options_.hung(absl::StrCat("rank ", options_.place.rank, ": ", why));
      });
  if (!names.ok()) {
    return Cut(OneLine(names.status().message()), kErrorBytesMax);
  }
  gpu_ = names->front();
  if (options_.place.world == 1) report_.opened = absl::StrJoin(*names, ", ");
  return "";
}

GpuCommOptions Preflight::GpuOptions() const {
  GpuCommOptions options = options_.gpus->comm();
  options.kill = [hung = options_.hung, gpu = gpu_](absl::string_view why) {
    hung(absl::StrCat(why, " on ", gpu));
  };
  return options;
}

absl::Status Preflight::MeasureAllOnGpus() {
  GpuCommOptions options = GpuOptions();
  options.connect_deadline = options_.limits.join;
  // all_ is its own until it is destroyed.
  auto comm = ConnectGpuComm(std::move(options), *all_, exchange_);
  if (GetReason(comm.status()) == kGpusUnusable) {
    report_.no_gpus_because = std::string(comm.status().message());
    return absl::OkStatus();
  }
  COHORT_RETURN_IF_ERROR(comm.status());
  with_gpus_ = true;
  report_.gpus_over = (*comm)->description();
  COHORT_ASSIGN_OR_RETURN(
      report_.all_gpu,
      Measure(**comm, options_.limits.gpu_bytes, options_.limits.repetitions,
              Now() + options_.limits.meeting()));
  if (!options_.nccl_log.empty()) {
    const auto log = ReadFile(options_.nccl_log);
    if (log.ok()) report_.nccl_ways = ParseNcclLog(*log);
  }
  return absl::OkStatus();
}

absl::Status Preflight::GatherFacts() {
  const auto interface = InterfaceOf(options_.host);
  const std::string mine = absl::StrCat(
      options_.place.node_rank, "\n",
      interface ? interface->megabits_per_second.value_or(0) : 0, "\n",
      interface ? interface->name : "", "\n", Cut(options_.host, 256));
  COHORT_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      GatherBlobs(*all_, mine, kFactsBytesMax, options_.limits.meeting()));
  for (const std::string& text : all) {
    const std::vector<std::string> fields =
        absl::StrSplit(text, absl::MaxSplits('\n', 3));
    RankFacts& facts = report_.ranks.emplace_back();
    if (fields.size() != 4 || !absl::SimpleAtoi(fields[0], &facts.node) ||
        !absl::SimpleAtoi(fields[1], &facts.megabits_per_second)) {
      return absl::InternalError("a rank of another build");
    }
    facts.interface = fields[2];
    facts.host = fields[3];
  }
  return absl::OkStatus();
}

// ---- pairs ----

absl::Status Preflight::MeasurePairs() {
  rounds_end_ = Now() + options_.limits.rounds(world());
  const int rounds = RoundsOf(world());
  for (int round = 0; round < rounds; ++round) {
    Pairs pairs;
    for (int a = 0; a < world(); ++a) {
      const std::optional<int> b = PeerOf(a, round, world());
      if (b.has_value() && a < *b) pairs.emplace_back(a, *b);
    }
    const absl::StatusOr<bool> goes_on = RunRound(pairs);
    if (!goes_on.ok()) {
      return Annotate(
          goes_on.status(),
          absl::StrCat("round ", round + 1, " of ", rounds, " of the pairs"));
    }
    if (!*goes_on) break;
  }
  return absl::OkStatus();
}

absl::Status Preflight::MeasureSlowOnesAgain() {
  std::vector<std::pair<int, int>> again;
  for (const PairFinding& finding : Judge(report_).findings) {
    const PairResult& pair = report_.pairs[finding.pair];
    const std::pair<int, int> duo = {pair.a, pair.b};
    // One that failed may leave a rank that is not what it was.
    if (pair.failed || again.size() == options_.limits.again_max ||
        std::find(again.begin(), again.end(), duo) != again.end()) {
      continue;
    }
    again.push_back(duo);
  }
  for (const std::pair<int, int>& duo : again) {
    const absl::StatusOr<bool> done = RunRound({duo});
    if (!done.ok()) {
      return Annotate(done.status(), absl::StrCat("ranks ", duo.first, " and ",
                                                  duo.second, " alone"));
    }
  }
  return absl::OkStatus();
}

absl::Status Preflight::GatherErrors() {
  const bool any_failed =
      std::any_of(report_.pairs.begin(), report_.pairs.end(),
                  [](const PairResult& pair) { return pair.failed; });
  if (!any_failed) return absl::OkStatus();
  const std::string mine =
      first_error_.has_value()
          ? absl::StrCat(first_error_->first, "\n", first_error_->second)
          : "";
  COHORT_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      GatherBlobs(*all_, mine, 2 * kErrorBytesMax, options_.limits.meeting()));
  for (const std::string& text : all) {
    const std::pair<std::string, std::string> told =
        absl::StrSplit(text, absl::MaxSplits('\n', 1));
    size_t index = 0;
    if (!absl::SimpleAtoi(told.first, &index) ||
        index >= report_.pairs.size()) {
      continue;
    }
    PairResult& pair = report_.pairs[index];
    if (pair.error.empty()) pair.error = told.second;
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Preflight::RunRound(const Pairs& pairs) {
  std::optional<Duo> duo;
  for (const auto& [a, b] : pairs) {
    if (a == rank()) duo.emplace(Duo{.peer = b});
    if (b == rank()) duo.emplace(Duo{.peer = a});
  }
  Lockstep lockstep(*all_, options_.limits.meeting());
  Found found;
  if (duo.has_value()) {
    absl::Status lost;
    found = TryDuo(*duo, lockstep, lost);
    COHORT_RETURN_IF_ERROR(lost);
    duo->comm.reset();
    duo->place.reset();
  }
  COHORT_RETURN_IF_ERROR(lockstep.ComeTo(with_gpus_ ? kGpuSteps : kHostSteps));
  const absl::StatusOr<bool> goes_on = Share(pairs, found);
  if (duo.has_value() && rank() < duo->peer && !duo->directory.empty()) {
    RemoveTree(duo->directory).IgnoreError();  // goes with the attempt at last
  }
  return goes_on;
}

Preflight::Found Preflight::TryDuo(Duo& duo, Lockstep& lockstep,
                                   absl::Status& lost) {
  Found found;
  found.status = ConnectDuo(duo, lockstep);
  // The others wait for nobody's measurements.
  lost = lockstep.ComeTo(kHostSteps);
  if (!lost.ok() || !found.status.ok()) return found;
  const auto host =
      Measure(*duo.comm, options_.limits.host_bytes,
              options_.limits.repetitions, Now() + options_.limits.pair);
  found.status = host.status();
  if (!host.ok()) return found;
  found.host = *host;
  if (!with_gpus_) return found;
  const absl::StatusOr<LinkFigures> gpu = TryGpus(duo, lockstep);
  found.status = Annotate(gpu.status(), "on GPUs");
  if (gpu.ok()) found.gpu = *gpu;
  return found;
}

absl::Status Preflight::ConnectDuo(Duo& duo, Lockstep& lockstep) {
  if (on_one_node()) return ConnectInArena(duo, lockstep);
#ifdef COHORT_HAVE_GLOO
  Exchange exchange = lockstep.With(duo.peer, kHostSteps);
  COHORT_ASSIGN_OR_RETURN(
      duo.comm, ConnectGloo({.rank = rank() < duo.peer ? 0 : 1,
                             .world = 2,
                             .epoch = all_->epoch(),
                             .hostname = options_.host,
                             .connect_deadline = options_.limits.pair},
                            exchange));
  return absl::OkStatus();
#else
  return absl::FailedPreconditionError("built without Gloo");
#endif
}

// The lower rank makes an arena of two, and says when it is there.
absl::Status Preflight::ConnectInArena(Duo& duo, Lockstep& lockstep) {
  const bool is_lower = rank() < duo.peer;
  duo.directory =
      absl::StrCat(options_.directory, "/pair-", std::min(rank(), duo.peer),
                   "-", std::max(rank(), duo.peer));
  absl::Status made;
  if (is_lower) {
    made = MakeDirectories(duo.directory, 0700);
    if (made.ok()) {
      made =
          shm::Arena::Create(duo.directory,
                             {.attempt = std::string(place_->arena().attempt()),
                              .epoch = all_->epoch(),
                              .local_world = 2})
              .status();
    }
  }
  Exchange exchange = lockstep.With(duo.peer, kHostSteps);
  COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> said,
                          exchange("arena", Cut(made.message(), kErrorBytesMax),
                                   options_.limits.pair));
  if (!said[0].empty()) return absl::UnavailableError(said[0]);
  COHORT_ASSIGN_OR_RETURN(
      duo.place, shm::ArenaPlace::Claim(duo.directory, is_lower ? 0 : 1));
  COHORT_ASSIGN_OR_RETURN(duo.comm, ShmComm::Create(*duo.place, all_->epoch()));
  return absl::OkStatus();
}

absl::StatusOr<LinkFigures> Preflight::TryGpus(Duo& duo, Lockstep& lockstep) {
  const absl::Duration until = Now() + options_.limits.gpu_pair;
  GpuCommOptions options = GpuOptions();
  options.connect_deadline = options_.limits.gpu_pair;
  Exchange exchange = lockstep.With(duo.peer, kGpuSteps);
  COHORT_ASSIGN_OR_RETURN(
      const std::unique_ptr<GpuComm> comm,
      ConnectGpuComm(std::move(options), *duo.comm, exchange));
  return Measure(*comm, options_.limits.gpu_bytes, options_.limits.repetitions,
                 until);
}

absl::StatusOr<bool> Preflight::Share(const Pairs& pairs, const Found& found) {
  enum Cell {
    kFailed,
    kLatency,
    kBandwidth,
    kGpuLatency,
    kGpuBandwidth,
    kCells
  };
  std::vector<double> cells(static_cast<size_t>(kCells) * world() + 1);
  double* const mine = cells.data() + size_t{kCells} * rank();
  mine[kFailed] = found.status.ok() ? 0 : 1;
  mine[kLatency] = found.host.latency_us;
  mine[kBandwidth] = found.host.gigabytes_per_second;
  if (found.gpu.has_value()) {
    mine[kGpuLatency] = found.gpu->latency_us;
    mine[kGpuBandwidth] = found.gpu->gigabytes_per_second;
  }
  // One rank's clock decides for all.
  if (rank() == 0 && Now() >= rounds_end_) cells.back() = 1;
  COHORT_RETURN_IF_ERROR(all_->AllReduce(
      Buffer::Of(std::span(cells)), ReduceOp::kSum, options_.limits.meeting()));
  for (const auto& [a, b] : pairs) {
    const double* const of_a = cells.data() + size_t{kCells} * a;
    const double* const of_b = cells.data() + size_t{kCells} * b;
    PairResult result = {.a = a, .b = b};
    result.failed = of_a[kFailed] + of_b[kFailed] > 0;
    if (!result.failed) {
      result.host = {.latency_us = of_a[kLatency],
                     .gigabytes_per_second = of_a[kBandwidth]};
      if (with_gpus_) {
        result.gpu = LinkFigures{.latency_us = of_a[kGpuLatency],
                                 .gigabytes_per_second = of_a[kGpuBandwidth]};
      }
    }
    Note(result);
    if ((a == rank() || b == rank()) && !found.status.ok() && !first_error_) {
      first_error_.emplace(
          index_.at({a, b}),
          Cut(OneLine(found.status.message()), kErrorBytesMax));
    }
  }
  return cells.back() == 0;
}

void Preflight::Note(const PairResult& result) {
  const auto [known, is_new] =
      index_.try_emplace({result.a, result.b}, report_.pairs.size());
  if (is_new) {
    report_.pairs.push_back(result);
    return;
  }
  PairResult& before = report_.pairs[known->second];
  before.failed = before.failed || result.failed;
  if (before.failed) return;
  const auto better = [](const LinkFigures& x, const LinkFigures& y) {
    return x.gigabytes_per_second > y.gigabytes_per_second ? x : y;
  };
  before.host = better(before.host, result.host);
  if (before.gpu && result.gpu) before.gpu = better(*before.gpu, *result.gpu);
}

}  // namespace cohort::trainer
