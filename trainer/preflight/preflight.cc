#include "trainer/preflight/preflight.h"

#include <algorithm>
#include <set>
#include <span>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "common/file.h"
#include "common/printable_text.h"
#include "common/real_clock.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "trainer/comm/gather.h"
#include "trainer/comm/shm_comm.h"
#include "trainer/preflight/tournament.h"
#ifdef COHORT_HAVE_GLOO
#include "trainer/comm/gloo_comm.h"
#endif

namespace cohort::trainer {
namespace {

// Exchanges that two ranks need to connect, by Gloo.
constexpr int kSteps = 2;
constexpr size_t kFactsBytesMax = 512;
constexpr size_t kErrorBytesMax = 256;

absl::Duration Left(absl::Duration until) {
  return std::max(until - MonotonicNow(), absl::Milliseconds(1));
}

// The shortest of `times` all-reduces: whatever else happens only adds to it.
absl::StatusOr<absl::Duration> BestOf(int times, Comm& comm,
                                      const Buffer& buffer,
                                      absl::Duration until) {
  absl::Duration best = absl::InfiniteDuration();
  for (int i = 0; i < times; ++i) {
    const absl::Duration began = MonotonicNow();
    COHORT_RETURN_IF_ERROR(comm.AllReduce(buffer, ReduceOp::kSum, Left(until)));
    best = std::min(best, MonotonicNow() - began);
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

// In GB/s.
absl::StatusOr<double> Measure(Comm& comm, size_t bytes, int repetitions,
                               absl::Duration until) {
  COHORT_RETURN_IF_ERROR(CheckSum(comm, until));
  COHORT_ASSIGN_OR_RETURN(const std::span<std::byte> memory,
                          comm.Allocate(bytes));
  const Buffer buffer = {memory.data(), bytes / sizeof(float), DType::kF32};
  // The first one finds everything cold, and is counted out by the others.
  COHORT_ASSIGN_OR_RETURN(const absl::Duration took,
                          BestOf(repetitions, comm, buffer, until));
  return static_cast<double>(bytes) / absl::ToDoubleNanoseconds(took);
}

// Some of the first need more than one of many: rounds of a few ranks have this
// in all.
constexpr absl::Duration kRoundsMin = absl::Seconds(20);
// A communicator made, used and left.
constexpr absl::Duration kRound = absl::Seconds(2);

}  // namespace

absl::Duration PreflightLimits::rounds(int world) const {
  return std::min(rounds_max, std::max(kRoundsMin, RoundsOf(world) * kRound));
}

Preflight::Preflight(PreflightOptions options, Exchange& exchange)
    : options_(std::move(options)), exchange_(exchange) {
  report_.world = options_.place.world;
}

Preflight::~Preflight() = default;

void Preflight::RevokeFor(const absl::Status& why) {
  if (absl::IsDeadlineExceeded(why)) return;
  if (all_ != nullptr) return all_->Revoke();
  if (place_ != nullptr) place_->arena().Revoke(place_->arena().epoch());
}

absl::StatusOr<PreflightReport> Preflight::Run() {
  COHORT_RETURN_IF_ERROR(options_.place.world > 1 ? RunTogether() : RunAlone());
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
    COHORT_RETURN_IF_ERROR(Annotate(TryGpusTogether(), "all together on GPUs"));
  }
  COHORT_RETURN_IF_ERROR(
      Annotate(MeasurePairs(), absl::StrCat("measuring pairs", over)));
  return Annotate(MeasureSlowestAgain(), absl::StrCat("measuring again", over));
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
  return "";
}

GpuCommOptions Preflight::GpuOptions() const {
  GpuCommOptions options = options_.gpus->comm();
  options.kill = [hung = options_.hung, gpu = gpu_](absl::string_view why) {
    hung(absl::StrCat(why, " on ", gpu));
  };
  return options;
}

absl::Status Preflight::TryGpusTogether() {
  GpuCommOptions options = GpuOptions();
  options.connect_deadline = options_.limits.join;
  // all_ is its own until it is destroyed.
  auto comm = ConnectGpuComm(std::move(options), *all_, exchange_);
  if (GetReason(comm.status()) == kGpusUnusable) {
    report_.no_gpus_because = std::string(comm.status().message());
    return absl::OkStatus();
  }
  COHORT_RETURN_IF_ERROR(comm.status());
  return Measure(**comm, options_.limits.gpu_bytes, options_.limits.repetitions,
                 MonotonicNow() + options_.limits.join)
      .status();
}

absl::Status Preflight::GatherFacts() {
  const std::string mine =
      absl::StrCat(options_.place.node_rank, "\n", Cut(options_.host, 256));
  COHORT_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      GatherBlobs(*all_, mine, kFactsBytesMax, options_.limits.meeting()));
  for (const std::string& text : all) {
    const std::vector<std::string> fields =
        absl::StrSplit(text, absl::MaxSplits('\n', 1));
    RankFacts& facts = report_.ranks.emplace_back();
    if (fields.size() != 2 || !absl::SimpleAtoi(fields[0], &facts.node)) {
      return absl::InternalError("a rank of another build");
    }
    facts.host = fields[1];
  }
  return absl::OkStatus();
}

// ---- pairs ----

absl::Status Preflight::MeasurePairs() {
  rounds_end_ = MonotonicNow() + options_.limits.rounds(world());
  const int rounds = RoundsOf(world());
  for (int round = 0; round < rounds; ++round) {
    Pairs pairs;
    for (int a = 0; a < world(); ++a) {
      const std::optional<int> b = PeerOf(a, round, world());
      if (b.has_value() && a < *b) pairs.emplace_back(a, *b);
    }
    const absl::StatusOr<Round> done = RunRound(pairs);
    if (!done.ok()) {
      return Annotate(done.status(),
                      absl::StrCat("round ", round + 1, " of ", rounds));
    }
    report_.pairs.insert(report_.pairs.end(), done->results.begin(),
                         done->results.end());
    if (done->is_last) break;
  }
  return absl::OkStatus();
}

absl::Status Preflight::MeasureSlowestAgain() {
  std::set<size_t> again;
  while (again.size() < options_.limits.again_max) {
    const Judgement judgement = Judge(report_);
    if (!judgement.slowest || !judgement.slowest->is_slow ||
        !again.insert(judgement.slowest->pair).second) {
      break;
    }
    PairResult& before = report_.pairs[judgement.slowest->pair];
    const absl::StatusOr<Round> done = RunRound({{before.a, before.b}});
    if (!done.ok()) {
      return Annotate(done.status(), absl::StrCat("ranks ", before.a, " and ",
                                                  before.b, " alone"));
    }
    PairResult after = done->results.front();
    after.gigabytes_per_second =
        std::max(before.gigabytes_per_second, after.gigabytes_per_second);
    before = after;
  }
  return absl::OkStatus();
}

absl::StatusOr<Preflight::Round> Preflight::RunRound(const Pairs& pairs) {
  std::optional<Duo> duo;
  for (const auto& [a, b] : pairs) {
    if (a == rank()) duo.emplace(Duo{.peer = b});
    if (b == rank()) duo.emplace(Duo{.peer = a});
  }
  Lockstep lockstep(*all_, options_.limits.meeting());
  std::optional<absl::StatusOr<double>> found;
  if (duo.has_value()) {
    found = TryDuo(*duo, lockstep);
    duo->comm.reset();
    duo->place.reset();
  }
  COHORT_RETURN_IF_ERROR(lockstep.ComeTo(kSteps));
  absl::StatusOr<Round> round =
      Share(pairs, found.has_value() ? &*found : nullptr);
  if (duo.has_value() && rank() < duo->peer && !duo->directory.empty()) {
    RemoveTree(duo->directory).IgnoreError();  // goes with the attempt at last
  }
  return round;
}

absl::StatusOr<double> Preflight::TryDuo(Duo& duo, Lockstep& lockstep) {
  const absl::Status connected = ConnectDuo(duo, lockstep);
  // The others wait for nobody's measurements.
  COHORT_RETURN_IF_ERROR(lockstep.ComeTo(kSteps));
  COHORT_RETURN_IF_ERROR(connected);
  return Measure(*duo.comm, options_.limits.host_bytes,
                 options_.limits.repetitions,
                 MonotonicNow() + options_.limits.pair);
}

absl::Status Preflight::ConnectDuo(Duo& duo, Lockstep& lockstep) {
  if (on_one_node()) return ConnectInArena(duo, lockstep);
#ifdef COHORT_HAVE_GLOO
  Exchange exchange = lockstep.With(duo.peer, kSteps);
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
  Exchange exchange = lockstep.With(duo.peer, kSteps);
  COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> said,
                          exchange("arena", Cut(made.message(), kErrorBytesMax),
                                   options_.limits.pair));
  if (!said[0].empty()) return absl::UnavailableError(said[0]);
  COHORT_ASSIGN_OR_RETURN(
      duo.place, shm::ArenaPlace::Claim(duo.directory, is_lower ? 0 : 1));
  COHORT_ASSIGN_OR_RETURN(duo.comm, ShmComm::Create(*duo.place, all_->epoch()));
  return absl::OkStatus();
}

absl::StatusOr<Preflight::Round> Preflight::Share(
    const Pairs& pairs, const absl::StatusOr<double>* found) {
  // One rank's clock decides for all.
  std::string mine = MonotonicNow() >= rounds_end_ ? "1\n" : "0\n";
  if (found != nullptr && found->ok()) absl::StrAppend(&mine, **found);
  absl::StrAppend(&mine, "\n");
  if (found != nullptr) {
    absl::StrAppend(&mine,
                    Cut(OneLine(found->status().message()), kErrorBytesMax));
  }
  COHORT_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      GatherBlobs(*all_, mine, 2 * kErrorBytesMax, options_.limits.meeting()));
  const auto words_of = [&](int rank) {
    return std::vector<std::string>(
        absl::StrSplit(all[rank], absl::MaxSplits('\n', 2)));
  };
  Round round = {.is_last = words_of(0)[0] == "1"};
  for (const auto& [a, b] : pairs) {
    const std::vector<std::string> of_a = words_of(a), of_b = words_of(b);
    PairResult& result = round.results.emplace_back(PairResult{.a = a, .b = b});
    if (of_a.size() != 3 || of_b.size() != 3) {
      return absl::InternalError("a rank of another build");
    }
    result.error = of_a[2].empty() ? of_b[2] : of_a[2];
    if (result.error.empty() &&
        !absl::SimpleAtod(of_a[1], &result.gigabytes_per_second)) {
      return absl::InternalError("a rank of another build");
    }
  }
  return round;
}

}  // namespace cohort::trainer
