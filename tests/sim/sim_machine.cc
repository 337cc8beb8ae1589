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

using worker::ExitReport;
using worker::KeyOf;
using Cause = worker::ExitCause;

ExitReport Exited(int code) {
  ExitReport status;
  status.exit_code = code;
  return status;
}

ExitReport Signalled(int signal, Cause cause) {
  ExitReport status;
  status.signal = signal;
  status.cause = cause;
  return status;
}

int64_t Number(const v1::DesiredPlace& place, int index) {
  return index < place.launch().command_size()
             ? std::atoll(place.launch().command(index).c_str())
             : 0;
}

}  // namespace

struct Machine::Process {
  v1::DesiredPlace place;  // as it was begun
  v1::DesiredProcess desired;
  ProcessId id;
  int64_t pid = 0;
  bool alive = false;
  bool ended = false;  // that is in the story
  std::vector<worker::KeeperEvent> story;
  int64_t step = 0;
  uint64_t reports = 0;
  absl::Duration started_at;
  std::unique_ptr<rpc::Channel> channel;
};

// One an attempt.
struct Machine::Keeper {
  std::map<ProcessId, Shared> processes;
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

void Machine::Begin(const v1::DesiredPlace& wanted,
                    const std::vector<ProcessId>& which,
                    const std::string& generation) {
  v1::DesiredPlace place = wanted;
  if (parts_.flaw == Flaw::kForgesRestore && place.has_restore()) {
    place.mutable_restore()->set_step(999);
  }
  CheckRestore(place);
  const std::string why_not =
      parts_.may_start ? parts_.may_start(place) : std::string();
  if (!why_not.empty()) return Violate(why_not);
  for (v1::DesiredProcess process : wanted.processes()) {
    const ProcessId id = worker::IdOf(place, process);
    if (std::find(which.begin(), which.end(), id) == which.end()) continue;
    if (parts_.flaw == Flaw::kDoublesDevices) {
      for (std::string& gpu : *process.mutable_gpu_ids())
        gpu = name() + "-gpu0";
    }
    BeginOne(place, process, generation);
  }
  CheckHolds();
}

void Machine::BeginOne(const v1::DesiredPlace& place,
                       const v1::DesiredProcess& desired,
                       const std::string& generation) {
  auto process = std::make_shared<Process>();
  process->place = place;
  process->desired = desired;
  process->id = worker::IdOf(place, desired);
  if (const Shared known = Find(process->id); known != nullptr) {
    // A keeper passes it over, and tells its story.
    counters_.Count("begun_before");
    for (const worker::KeeperEvent& event : known->story) {
      if (tell_) tell_(event);
    }
    return;
  }
  CheckIncarnation(*process, generation);
  begun_[generation][process->id] = place.epoch();
  keepers_[process->id.attempt].processes[process->id] = process;
  process->alive = true;
  process->started_at = clock_.Monotonic();
  process->pid = next_pid_++;
  process->step = place.restore().step();
  Say(*process, worker::ProcessStarted{KeyOf(process->id), process->pid});
  Run(process);
  if (desired.has_time_limit()) {
    world_.PostAfter(rpc::FromWire(desired.time_limit()),
                     [this, process] { TimeIsUp(process); });
  }
}

// The keeper's own clock, whatever else runs.
void Machine::TimeIsUp(const Shared& process) {
  if (!process->alive) return;
  counters_.Count("time_limit_fired");
  EndByOrder(process, rpc::FromWire(process->desired.grace()),
             Cause::kTimeLimit, Cause::kTimeLimit);
}

void Machine::Run(const Shared& process) {
  if (parts_.flaw == Flaw::kRanksNeverEnd) return;
  const v1::DesiredPlace& place = process->place;
  const auto after = [this, process](int64_t ms, ExitReport status) {
    world_.PostAfter(absl::Milliseconds(ms), [this, process, status] {
      if (process->alive) Exit(process, status);
    });
  };
  const std::string& program = place.launch().command(0);
  if (program == "fail") {
    const bool fails = place.number() <= Number(place, 1);
    after(Number(place, 2),
          Exited(fails ? static_cast<int>(Number(place, 3)) : 0));
  } else if (program == "segv") {
    after(Number(place, 1), Signalled(SIGSEGV, Cause::kItself));
  } else if (program == "train") {
    process->channel = parts_.connect(process->id);
    Train(process);
  } else {
    after(Number(place, 1), Exited(0));
  }
}

void Machine::Train(const Shared& process) {
  v1::ExchangeRequest request;
  request.set_attempt_id(process->place.attempt_id());
  request.set_slot(process->id.slot);
  request.set_incarnation(process->id.incarnation);
  request.set_epoch(process->place.epoch());
  request.set_tag("gang");
  request.set_blob(absl::StrCat("rank ", process->desired.rank()));
  rpc::Call(*process->channel, rpc::kExchange, request,
            {.deadline = absl::Seconds(20)}, world_,
            [this, process](absl::StatusOr<v1::ExchangeResponse> response) {
              if (!process->alive) return;
              if (absl::IsUnavailable(response.status())) {
                // The daemon is away: asked again when it is back.
                counters_.Count("exchange_repeated");
                world_.PostAfter(absl::Milliseconds(200), [this, process] {
                  if (process->alive) Train(process);
                });
                return;
              }
              if (!response.ok()) return Exit(process, Exited(9));
              for (int i = 0; i < response->blobs_size(); ++i) {
                if (response->blobs(i) != absl::StrCat("rank ", i)) {
                  Violate("EX-1: an exchange gave another rank's blob");
                }
              }
              counters_.Count("exchange_answered");
              TrainStep(process);
            });
}

void Machine::TrainStep(const Shared& process) {
  if (!process->alive) return;
  const v1::DesiredPlace& place = process->place;
  if (process->step >= Number(place, 1)) return Exit(process, Exited(0));
  ++process->step;
  ++process->reports;
  if (tell_metrics_) {
    tell_metrics_(process->id, process->reports,
                  absl::StrCat("{\"step\":", process->step, "}"));
  }
  const auto next = [this, process] {
    world_.PostAfter(absl::Milliseconds(Number(process->place, 2)),
                     [this, process] { TrainStep(process); });
  };
  if (process->desired.rank() != 0 || process->step % 3 != 0) return next();
  v1::CommitCheckpointRequest request;
  request.set_attempt_id(place.attempt_id());
  request.set_slot(process->id.slot);
  request.set_incarnation(process->id.incarnation);
  request.set_epoch(place.epoch());
  request.mutable_checkpoint()->set_path(absl::StrCat(
      "/results/", JobIdText(place.job_id()), "/attempt-", place.number(), ".",
      place.epoch(), "/step-", process->step));
  request.mutable_checkpoint()->set_step(process->step);
  written_[place.job_id()].insert(process->step);
  rpc::Call(*process->channel, rpc::kCommitCheckpoint, request,
            {.deadline = absl::Seconds(5)}, world_,
            [this, process,
             next](absl::StatusOr<v1::CommitCheckpointResponse> response) {
              if (!process->alive) return;
              counters_.Count(response.ok() ? "checkpoint_accepted"
                                            : "checkpoint_unanswered");
              next();
            });
}

void Machine::Exit(const Shared& process, ExitReport status) {
  process->alive = false;
  status.process = KeyOf(process->id);
  status.ran_ms =
      absl::ToInt64Milliseconds(clock_.Monotonic() - process->started_at);
  Say(*process, std::move(status));
  // Its descendants go after it.
  world_.PostAfter(Between(absl::ZeroDuration(), absl::Milliseconds(50)),
                   [this, process] { End(*process); });
}

void Machine::End(Process& process) {
  if (std::exchange(process.ended, true)) return;
  Say(process, worker::ProcessEnded{KeyOf(process.id)});
}

void Machine::Say(Process& process, worker::KeeperEvent event) {
  process.story.push_back(event);
  if (tell_) tell_(event);
}

std::optional<std::vector<worker::ProcessKey>> Machine::KnownOf(
    const AttemptId& attempt) const {
  const auto keeper = keepers_.find(attempt);
  if (keeper == keepers_.end()) return std::nullopt;
  std::vector<worker::ProcessKey> known;
  for (const auto& [id, process] : keeper->second.processes) {
    known.push_back(KeyOf(id));
  }
  return known;
}

void Machine::Replay(const AttemptId& attempt) {
  const auto keeper = keepers_.find(attempt);
  if (keeper == keepers_.end() || !tell_) return;
  for (const auto& [id, process] : keeper->second.processes) {
    for (const worker::KeeperEvent& event : process->story) tell_(event);
  }
}

Machine::Shared Machine::Find(const ProcessId& id) const {
  const auto keeper = keepers_.find(id.attempt);
  if (keeper == keepers_.end()) return nullptr;
  const auto found = keeper->second.processes.find(id);
  return found == keeper->second.processes.end() ? nullptr : found->second;
}

void Machine::Stop(const ProcessId& id, absl::Duration grace) {
  const Shared process = Find(id);
  if (process == nullptr || process->ended) return;
  CheckMayEnd(id);
  if (parts_.flaw == Flaw::kRanksNeverEnd) return;
  EndByOrder(process, grace, Cause::kStopped, Cause::kKilled);
}

void Machine::StopAll(absl::Duration grace) {
  for (const Shared& process : Living()) Stop(process->id, grace);
}

void Machine::EndByOrder(const Shared& process, absl::Duration grace,
                         Cause asked, Cause forced) {
  const bool stubborn = process->place.launch().command(0) == "stubborn";
  const absl::Duration delay =
      stubborn ? grace : Between(absl::Milliseconds(1), grace / 2);
  const ExitReport status =
      stubborn ? Signalled(SIGKILL, forced) : Signalled(SIGTERM, asked);
  if (stubborn) counters_.Count("killed_after_grace");
  world_.PostAfter(delay, [this, process, status] {
    if (process->alive) Exit(process, status);
  });
}

void Machine::Kill(const ProcessId& id) {
  const Shared process = Find(id);
  if (process == nullptr || process->ended) return;
  CheckMayEnd(id);
  world_.PostAfter(absl::Milliseconds(1), [this, process] {
    if (process->alive) Exit(process, Signalled(SIGKILL, Cause::kKilled));
  });
}

void Machine::Remove(const ProcessId& id) {
  const Shared process = Find(id);
  if (process == nullptr) return;
  if (!process->ended) {
    Violate(absl::StrCat("RC-1: process ", id.ToText(),
                         " was forgotten while it ran"));
  }
  if (parts_.flaw == Flaw::kForgetsNothing) return;
  keepers_.at(id.attempt).processes.erase(id);
}

void Machine::Remove(const AttemptId& attempt) {
  const auto keeper = keepers_.find(attempt);
  if (keeper == keepers_.end()) return;
  for (const auto& [id, process] : keeper->second.processes) {
    if (process->ended) continue;
    Violate(absl::StrCat("RC-1: attempt ", attempt.ToHex(),
                         " was forgotten while it ran"));
  }
  if (parts_.flaw == Flaw::kForgetsNothing) return;
  keepers_.erase(keeper);
}

void Machine::BootFromImageOf(const Machine& from) {
  places = from.places;
  processes = from.processes;
  binding = from.binding;
  begun_ = from.begun_;
  for (const auto& [attempt, keeper] : from.keepers_) {
    for (const auto& [id, theirs] : keeper.processes) {
      auto process = std::make_shared<Process>();
      process->place = theirs->place;
      process->desired = theirs->desired;
      process->id = id;
      process->alive = theirs->alive;
      process->ended = theirs->ended;
      process->story = theirs->story;
      keepers_[attempt].processes[id] = std::move(process);
    }
  }
  Reboot();
}

// ---- faults ----

std::vector<Machine::Shared> Machine::All() const {
  std::vector<Shared> all;
  for (const auto& [attempt, keeper] : keepers_) {
    for (const auto& [id, process] : keeper.processes) all.push_back(process);
  }
  return all;
}

std::vector<Machine::Shared> Machine::Living() const {
  std::vector<Shared> living = All();
  std::erase_if(living, [](const Shared& process) { return !process->alive; });
  return living;
}

bool Machine::KillARank() {
  const std::vector<Shared> living = Living();
  if (living.empty()) return false;
  Exit(living[random_.Below(living.size())],
       Signalled(SIGKILL, Cause::kItself));
  return true;
}

bool Machine::KillAKeeper() {
  for (const auto& [attempt, keeper] : keepers_) {
    bool has_any = false;
    for (const auto& [id, process] : keeper.processes) {
      if (process->ended) continue;
      has_any = true;
      if (std::exchange(process->alive, false)) {
        ExitReport lost = Signalled(SIGKILL, Cause::kKeeperLost);
        lost.process = KeyOf(id);
        lost.message = "the keeper was killed";
        Say(*process, std::move(lost));
      }
      End(*process);
    }
    if (has_any) return true;
  }
  return false;
}

void Machine::Reboot() {
  while (KillAKeeper()) {
  }
}

// ---- invariants ----

size_t Machine::live_ranks() const { return Living().size(); }

std::set<AttemptId> Machine::Live() const {
  std::set<AttemptId> live;
  for (const Shared& process : Living()) live.insert(process->id.attempt);
  return live;
}

void Machine::Violate(std::string what) {
  if (violation_.empty()) violation_ = std::move(what);
}

// RC-1, OR-1.
void Machine::CheckMayEnd(const ProcessId& id) {
  if (!parts_.may_end) return;
  const std::string why_not = parts_.may_end(id);
  if (!why_not.empty()) Violate(why_not);
}

// PL-2, as the machine sees it.
void Machine::CheckHolds() {
  std::map<std::string, int64_t> used;
  ResourceSet sum;
  for (const Shared& process : All()) {
    if (process->ended) continue;
    const ResourceSet each =
        rpc::FromWire(process->place.resources_per_process())
            .value_or(ResourceSet());
    sum.Add(each);
    for (const std::string& gpu : process->desired.gpu_ids()) {
      used[gpu] += std::min(each.Get(kGpu).ten_thousandths(), Amount::kScale);
    }
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

// PR-1, PR-2 and PR-3, as the machine sees them.
void Machine::CheckIncarnation(const Process& starting,
                               const std::string& generation) {
  const ProcessId& id = starting.id;
  for (const Shared& other : All()) {
    if (other->id.attempt == id.attempt && other->id.slot == id.slot &&
        !other->ended) {
      Violate(absl::StrCat("PR-1: process ", id.ToText(), " begins while ",
                           other->id.ToText(), " lives"));
    }
  }
  // A head with a store that was restored counts from its backup on.
  const std::map<ProcessId, int64_t>& begun = begun_[generation];
  if (begun.contains(id)) {
    Violate(absl::StrCat("PR-2: process ", id.ToText(), " is begun twice"));
  }
  for (const auto& [before, epoch] : begun) {
    if (before.attempt != id.attempt || before.slot != id.slot) continue;
    if (before.incarnation > id.incarnation ||
        epoch >= starting.place.epoch()) {
      Violate(absl::StrCat("PR-3: process ", id.ToText(), " of epoch ",
                           starting.place.epoch(), " begins after ",
                           before.ToText(), " of epoch ", epoch));
    }
  }
}

// CK-1, as the machine sees it.
void Machine::CheckRestore(const v1::DesiredPlace& starting) {
  if (!starting.has_restore()) return;
  counters_.Count("restored");
  if (!written_[starting.job_id()].contains(starting.restore().step())) {
    Violate(absl::StrCat("CK-1: ranks are to go on from step ",
                         starting.restore().step(), ", which nobody wrote"));
  }
}

}  // namespace cohort::sim
