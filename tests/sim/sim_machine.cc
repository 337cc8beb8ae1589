#include "tests/sim/sim_machine.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "common/job_id.h"
#include "rpc/methods.h"
#include "rpc/wire_values.h"

namespace cohort::sim {
namespace {

using worker::AttemptPhase;
using worker::ExitStatus;
using Cause = worker::ExitStatus::Cause;

ExitStatus Exited(int code) {
  ExitStatus status;
  status.exit_code = code;
  return status;
}

ExitStatus Signalled(int signal, Cause cause) {
  ExitStatus status;
  status.signal = signal;
  status.cause = cause;
  return status;
}

int64_t Number(const v1::DesiredAttempt& attempt, int index) {
  return index < attempt.command_size()
             ? std::atoll(attempt.command(index).c_str())
             : 0;
}

}  // namespace

struct Machine::Rank {
  v1::DesiredAttempt attempt;
  AttemptId id;
  int rank = 0;
  int64_t pid = 0;
  bool alive = false;
  bool exited = false;
  int64_t step = 0;
  uint64_t reports = 0;
  absl::Duration started_at;
  std::unique_ptr<rpc::Channel> channel;
};

struct Machine::Attempt {
  AttemptId id;
  v1::DesiredAttempt desired;
  std::vector<std::shared_ptr<Rank>> ranks;
  std::vector<worker::KeeperEvent> story;
  bool keeper_alive = true;
  bool over = false;  // AllDone or KeeperLost is in the story
  bool stopping = false;
};

Machine::Machine(Parts parts, Executor& world, const Clock& clock,
                 Random& random, Counters& counters,
                 WrittenCheckpoints& written)
    : parts_(std::move(parts)),
      world_(world),
      clock_(clock),
      random_(random),
      counters_(counters),
      written_(written) {}

Machine::~Machine() = default;

void Machine::SetDaemon(Tell tell, TellMetrics metrics) {
  tell_ = std::move(tell);
  tell_metrics_ = std::move(metrics);
}

absl::Duration Machine::Between(absl::Duration low, absl::Duration high) {
  return low + (high - low) * random_.Double();
}

// ---- keepers ----

void Machine::Start(const v1::DesiredAttempt& wanted) {
  v1::DesiredAttempt desired = wanted;
  if (parts_.flaw == Flaw::kDoublesDevices) {
    for (v1::DesiredRank& rank : *desired.mutable_ranks()) {
      for (std::string& gpu : *rank.mutable_gpu_ids()) gpu = name() + "-gpu0";
    }
  }
  if (parts_.flaw == Flaw::kForgesRestore && desired.has_restore()) {
    desired.mutable_restore()->set_step(999);
  }
  CheckHolds(desired);
  CheckRestore(desired);
  const AttemptId id = *AttemptId::FromBytes(desired.attempt_id());
  if (!started_.insert(id).second) {
    return Violate(
        absl::StrCat("AT-1: attempt ", id.ToHex(), " started twice"));
  }
  const std::string why_not =
      parts_.may_start ? parts_.may_start(desired) : std::string();
  if (!why_not.empty()) return Violate(why_not);
  auto attempt = std::make_unique<Attempt>();
  attempt->id = id;
  attempt->desired = desired;
  for (const v1::DesiredRank& desired_rank : desired.ranks()) {
    auto rank = std::make_shared<Rank>();
    rank->attempt = desired;
    rank->id = id;
    rank->rank = desired_rank.rank();
    attempt->ranks.push_back(std::move(rank));
  }
  Attempt& started = *attempt;
  attempts_[id] = std::move(attempt);
  for (const std::shared_ptr<Rank>& rank : started.ranks) {
    StartRank(started, *rank);
  }
  if (desired.has_time_limit()) {
    world_.PostAfter(rpc::FromWire(desired.time_limit()),
                     [this, id] { TimeIsUp(id); });
  }
}

// The keeper's own clock, whoever else is there: each rank that still lives
// gets its grace.
void Machine::TimeIsUp(const AttemptId& id) {
  const auto found = attempts_.find(id);
  if (found == attempts_.end() || found->second->over) return;
  counters_.Count("time_limit_fired");
  EndRanks(*found->second, rpc::FromWire(found->second->desired.grace()),
           Cause::kTimeLimit, Cause::kTimeLimit);
}

void Machine::StartRank(Attempt& attempt, Rank& rank) {
  rank.alive = true;
  rank.started_at = clock_.Monotonic();
  rank.pid = next_pid_++;
  rank.step = attempt.desired.restore().step();
  Say(attempt, worker::RankStarted{rank.rank, rank.pid});
  for (const std::shared_ptr<Rank>& owned : attempt.ranks) {
    if (owned.get() == &rank) RunRank(owned);
  }
}

void Machine::RunRank(const std::shared_ptr<Rank>& rank) {
  const v1::DesiredAttempt& attempt = rank->attempt;
  const std::string program = attempt.command(0);
  const auto after = [this, rank](int64_t ms, ExitStatus status) {
    if (parts_.flaw == Flaw::kRanksNeverEnd) return;
    world_.PostAfter(absl::Milliseconds(ms), [this, rank, status] {
      if (rank->alive) Exit(*rank, status);
    });
  };
  if (program == "fail") {
    const bool fails = attempt.number() <= Number(attempt, 1);
    after(Number(attempt, 2),
          Exited(fails ? static_cast<int>(Number(attempt, 3)) : 0));
  } else if (program == "segv") {
    after(Number(attempt, 1), Signalled(SIGSEGV, Cause::kItself));
  } else if (program == "train") {
    rank->channel = parts_.connect(rank->id);
    v1::ExchangeRequest request;
    request.set_attempt_id(attempt.attempt_id());
    request.set_rank(rank->rank);
    request.set_epoch(attempt.epoch());
    request.set_tag("gang");
    request.set_blob(absl::StrCat("rank ", rank->rank));
    rpc::Call(*rank->channel, rpc::kExchange, request,
              {.deadline = absl::Seconds(20)}, world_,
              [this, rank](absl::StatusOr<v1::ExchangeResponse> response) {
                if (!rank->alive) return;
                if (absl::IsUnavailable(response.status())) {
                  // The daemon is away: asked again when it is back.
                  counters_.Count("exchange_repeated");
                  world_.PostAfter(absl::Milliseconds(200), [this, rank] {
                    if (rank->alive) RunRank(rank);
                  });
                  return;
                }
                if (!response.ok()) return Exit(*rank, Exited(9));
                for (int i = 0; i < response->blobs_size(); ++i) {
                  if (response->blobs(i) != absl::StrCat("rank ", i)) {
                    Violate("EX-1: an exchange gave another rank's blob");
                  }
                }
                counters_.Count("exchange_answered");
                TrainStep(rank);
              });
  } else {
    after(Number(attempt, 1), Exited(0));
  }
}

void Machine::TrainStep(const std::shared_ptr<Rank>& rank) {
  if (!rank->alive) return;
  const v1::DesiredAttempt& attempt = rank->attempt;
  if (rank->step >= Number(attempt, 1)) return Exit(*rank, Exited(0));
  ++rank->step;
  ++rank->reports;
  if (tell_metrics_) {
    tell_metrics_(rank->id, rank->rank, rank->reports,
                  absl::StrCat("{\"step\":", rank->step, "}"));
  }
  const auto next = [this, rank] {
    world_.PostAfter(absl::Milliseconds(Number(rank->attempt, 2)),
                     [this, rank] { TrainStep(rank); });
  };
  if (rank->rank != 0 || rank->step % 3 != 0) return next();
  v1::CommitCheckpointRequest request;
  request.set_attempt_id(attempt.attempt_id());
  request.set_rank(rank->rank);
  request.set_epoch(attempt.epoch());
  request.mutable_checkpoint()->set_path(absl::StrCat(
      "/results/", JobIdText(attempt.job_id()), "/attempt-", attempt.number(),
      ".", attempt.epoch(), "/step-", rank->step));
  request.mutable_checkpoint()->set_step(rank->step);
  written_[attempt.job_id()].insert(rank->step);
  rpc::Call(*rank->channel, rpc::kCommitCheckpoint, request,
            {.deadline = absl::Seconds(5)}, world_,
            [this, rank,
             next](absl::StatusOr<v1::CommitCheckpointResponse> response) {
              if (!rank->alive) return;
              counters_.Count(response.ok() ? "checkpoint_accepted"
                                            : "checkpoint_unanswered");
              next();
            });
}

void Machine::Exit(Rank& rank, ExitStatus status) {
  rank.alive = false;
  rank.exited = true;
  const auto found = attempts_.find(rank.id);
  if (found == attempts_.end()) return;
  Attempt& attempt = *found->second;
  status.ran = clock_.Monotonic() - rank.started_at;
  Say(attempt, worker::RankExited{rank.rank, std::move(status)});
  End(attempt);
}

void Machine::End(Attempt& attempt) {
  if (attempt.over || !attempt.keeper_alive) return;
  const bool all = std::all_of(
      attempt.ranks.begin(), attempt.ranks.end(),
      [](const std::shared_ptr<Rank>& rank) { return rank->exited; });
  if (!all) return;
  attempt.over = true;
  Say(attempt, worker::AllDone{});
}

void Machine::Say(Attempt& attempt, worker::KeeperEvent event) {
  attempt.story.push_back(event);
  if (tell_) tell_(attempt.id, event);
}

std::optional<AttemptPhase> Machine::PhaseOf(const AttemptId& id) const {
  const auto found = attempts_.find(id);
  if (found == attempts_.end()) return std::nullopt;
  if (!found->second->keeper_alive) return AttemptPhase::kKeeperLost;
  return found->second->over ? AttemptPhase::kDone : AttemptPhase::kRunning;
}

void Machine::Replay(const AttemptId& id) {
  const auto found = attempts_.find(id);
  if (found == attempts_.end() || !tell_) return;
  for (const worker::KeeperEvent& event : found->second->story) {
    tell_(id, event);
  }
}

void Machine::Stop(const AttemptId& id, absl::Duration grace) {
  const auto found = attempts_.find(id);
  if (found == attempts_.end() || found->second->over) return;
  CheckMayEnd(id);
  if (parts_.flaw == Flaw::kRanksNeverEnd) return;
  EndRanks(*found->second, grace, Cause::kStopped, Cause::kKilled);
}

void Machine::EndRanks(Attempt& attempt, absl::Duration grace, Cause asked,
                       Cause forced) {
  for (const std::shared_ptr<Rank>& rank : attempt.ranks) {
    const bool stubborn = rank->attempt.command(0) == "stubborn";
    const absl::Duration delay =
        stubborn ? grace : Between(absl::Milliseconds(1), grace / 2);
    const ExitStatus status =
        stubborn ? Signalled(SIGKILL, forced) : Signalled(SIGTERM, asked);
    if (stubborn) counters_.Count("killed_after_grace");
    world_.PostAfter(delay, [this, rank, status] {
      if (rank->alive) Exit(*rank, status);
    });
  }
}

void Machine::Kill(const AttemptId& id) {
  const auto found = attempts_.find(id);
  if (found == attempts_.end() || found->second->over) return;
  CheckMayEnd(id);
  for (const std::shared_ptr<Rank>& rank : found->second->ranks) {
    world_.PostAfter(absl::Milliseconds(1), [this, rank] {
      if (rank->alive) Exit(*rank, Signalled(SIGKILL, Cause::kKilled));
    });
  }
}

void Machine::Remove(const AttemptId& id) {
  const auto found = attempts_.find(id);
  if (found == attempts_.end()) return;
  if (!found->second->over) {
    Violate(absl::StrCat("RC-1: attempt ", id.ToHex(),
                         " was forgotten while it ran"));
  }
  if (parts_.flaw == Flaw::kForgetsNothing) return;
  attempts_.erase(found);
}

void Machine::BootFromImageOf(const Machine& from) {
  journal = from.journal;
  binding = from.binding;
  started_ = from.started_;
  for (const auto& [id, there] : from.attempts_) {
    auto attempt = std::make_unique<Attempt>();
    attempt->id = id;
    attempt->desired = there->desired;
    attempt->story = there->story;
    for (const std::shared_ptr<Rank>& theirs : there->ranks) {
      auto rank = std::make_shared<Rank>();
      rank->attempt = theirs->attempt;
      rank->id = id;
      rank->rank = theirs->rank;
      rank->alive = theirs->alive;
      rank->exited = theirs->exited;
      attempt->ranks.push_back(std::move(rank));
    }
    attempt->keeper_alive = there->keeper_alive;
    attempt->over = there->over;
    attempts_[id] = std::move(attempt);
  }
  Reboot();
}

// ---- faults ----

std::vector<std::shared_ptr<Machine::Rank>> Machine::LiveRanks() const {
  std::vector<std::shared_ptr<Rank>> live;
  for (const auto& [id, attempt] : attempts_) {
    for (const std::shared_ptr<Rank>& rank : attempt->ranks) {
      if (rank->alive) live.push_back(rank);
    }
  }
  return live;
}

bool Machine::KillARank() {
  const std::vector<std::shared_ptr<Rank>> live = LiveRanks();
  if (live.empty()) return false;
  Exit(*live[random_.Below(live.size())], Signalled(SIGKILL, Cause::kItself));
  return true;
}

bool Machine::KillAKeeper() {
  for (const auto& [id, attempt] : attempts_) {
    if (attempt->over || !attempt->keeper_alive) continue;
    attempt->keeper_alive = false;
    attempt->over = true;
    for (const std::shared_ptr<Rank>& rank : attempt->ranks) {
      if (!rank->alive) continue;
      rank->alive = false;
      rank->exited = true;
      Say(*attempt, worker::RankExited{rank->rank,
                                       Signalled(SIGKILL, Cause::kKeeperLost)});
    }
    Say(*attempt, worker::KeeperLost{"the keeper was killed"});
    return true;
  }
  return false;
}

void Machine::Reboot() {
  while (KillAKeeper()) {
  }
}

// ---- invariants ----

size_t Machine::live_ranks() const { return LiveRanks().size(); }

std::set<AttemptId> Machine::Live() const {
  std::set<AttemptId> live;
  for (const std::shared_ptr<Rank>& rank : LiveRanks()) live.insert(rank->id);
  return live;
}

void Machine::Violate(std::string what) {
  if (violation_.empty()) violation_ = std::move(what);
}

// RC-1, OR-1.
void Machine::CheckMayEnd(const AttemptId& id) {
  if (!parts_.may_end) return;
  const std::string why_not = parts_.may_end(id);
  if (!why_not.empty()) Violate(why_not);
}

// PL-2, as the machine sees it.
void Machine::CheckHolds(const v1::DesiredAttempt& starting) {
  std::map<std::string, int64_t> used;
  ResourceSet sum;
  const auto add = [&used, &sum](const v1::DesiredAttempt& attempt) {
    const ResourceSet per_rank =
        rpc::FromWire(attempt.resources_per_rank()).value_or(ResourceSet());
    const int64_t of_each =
        std::min(per_rank.Get(kGpu).ten_thousandths(), Amount::kScale);
    for (const v1::DesiredRank& rank : attempt.ranks()) {
      sum.Add(per_rank);
      for (const std::string& gpu : rank.gpu_ids()) used[gpu] += of_each;
    }
  };
  add(starting);
  for (const auto& [id, attempt] : attempts_) {
    if (!attempt->over) add(attempt->desired);
  }
  for (const auto& [gpu, amount] : used) {
    if (amount > Amount::kScale) {
      Violate(absl::StrCat("PL-2: ", gpu, " on ", name(),
                           " is given to ranks more than once"));
    }
  }
  if (!parts_.resources.Fits(sum)) {
    Violate(absl::StrCat("PL-2: ", name(),
                         " runs more than it has: ", sum.ToString()));
  }
}

// CK-1, as the machine sees it.
void Machine::CheckRestore(const v1::DesiredAttempt& starting) {
  if (!starting.has_restore()) return;
  counters_.Count("restored");
  if (!written_[starting.job_id()].contains(starting.restore().step())) {
    Violate(absl::StrCat("CK-1: ranks are to go on from step ",
                         starting.restore().step(), ", which nobody wrote"));
  }
}

}  // namespace cohort::sim
