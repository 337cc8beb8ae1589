#include "worker/keeper/keeper.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <set>
#include <utility>

#include "worker/keeper/child.h"
#include "worker/keeper/clocks.h"

namespace cohort::keeper {
namespace {

// Killed processes end in microseconds; only those in uninterruptible sleep
// make us look again and again.
constexpr int kSweepEvery_ms = 20;
// Of a child without an environment: one that was begun with none.
constexpr int kUntoldSweepsMax = 10;
// For a daemon that is alive but slow; one that is dead costs nothing.
constexpr int kLastWords_ms = 2000;
// An init system goes once through all processes, which takes milliseconds.
constexpr long kSigtermsApart_ms = 500;
// A poll takes an int; who waits longer looks again.
constexpr int64_t kWaitMax_ms = 3600 * 1000;

UniqueFd TakeSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  // SIGINT and SIGHUP are taken too, and ignored: a terminal's business.
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) {
    sigaddset(&signals, signal);
  }
  sigprocmask(SIG_SETMASK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return UniqueFd(signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC));
}

// Of the signal, or with the code that a shell has for it.
bool EndedBySigterm(const siginfo_t& ended) {
  return ended.si_status ==
         (ended.si_code == CLD_EXITED ? 128 + SIGTERM : SIGTERM);
}

bool HasFile(const Directory& dir, const std::string& name) {
  return faccessat(dir.fd(), name.c_str(), F_OK, 0) == 0;
}

}  // namespace

Keeper::Keeper(KeeperInputs inputs)
    : inputs_(std::move(inputs)),
      dir_(inputs_.dir),
      feed_(poller_, std::move(inputs_.listener)),
      signals_(TakeSignals()) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  poller_.Watch(signals_.get(), Source::kSignals, 0);
}

std::string Keeper::Prepare() {
  if (!dir_.error().empty()) return dir_.error();
  KeeperReport report;
  report.pid = getpid();
  const std::optional<ProcessStat> stat = ReadProcessStat(getpid());
  report.start_time = stat ? static_cast<int64_t>(stat->start_time) : 0;
  report.boot_id = ReadBootId();
  MakeCgroup();
  report.cgroup = group_.path();
  const std::string packet = Encode(report);
  const std::string error =
      WriteByRename(dir_, "keeper", packet, Durability::kCrash);
  if (error.empty()) {
    feed_.Publish({}, packet);
  } else {
    group_.Remove();
  }
  return error;
}

void Keeper::MakeCgroup() {
  if (inputs_.cgroup_parent.empty()) return;
  const std::string error =
      Cgroup::Create(inputs_.cgroup_parent, CgroupName(inputs_.place), &group_);
  if (!error.empty()) {
    std::fprintf(stderr, "runs without a cgroup: %s\n", error.c_str());
  }
  group_.EnableControllersBelow();
}

void Keeper::Run() {
  quiet_since_ms_ = alone_since_ms_ = MonotonicNow_ms();
  while (true) {
    TakeDeadlines();
    if (sweeping_) Sweep();
    if (MayLeave(MonotonicNow_ms())) break;
    for (const Ready& ready : poller_.Wait(NextTimeout_ms())) Dispatch(ready);
  }
  group_.Remove();
}

bool Keeper::MayLeave(int64_t now_ms) {
  const bool quiet = AllSettled();
  if (!quiet) quiet_since_ms_ = now_ms;
  if (!quiet || feed_.connected()) alone_since_ms_ = now_ms;
  if (leaving_) {
    return quiet &&
           (feed_.AllSent() || now_ms >= quiet_since_ms_ + kLastWords_ms);
  }
  if (!quiet || !AllRecorded() ||
      now_ms < alone_since_ms_ + inputs_.idle_timeout_ms) {
    return false;
  }
  // A daemon that just connects has found a keeper.
  feed_.OnListenerReady();
  return !feed_.connected();
}

int Keeper::NextTimeout_ms() const {
  int64_t timeout = -1;
  const auto within = [&timeout](int64_t ms) {
    ms = std::clamp<int64_t>(ms, 0, kWaitMax_ms);
    timeout = timeout < 0 ? ms : std::min(timeout, ms);
  };
  const int64_t now = MonotonicNow_ms();
  for (const auto& [index, process] : processes_) {
    if (process->deadline_ms()) within(*process->deadline_ms() - now);
  }
  if (sweeping_) within(kSweepEvery_ms);
  if (AllSettled()) {
    if (leaving_) within(quiet_since_ms_ + kLastWords_ms - now);
    if (AllRecorded() && !feed_.connected()) {
      within(alone_since_ms_ + inputs_.idle_timeout_ms - now);
    }
  }
  return static_cast<int>(timeout);
}

void Keeper::Dispatch(const Ready& ready) {
  switch (ready.source) {
    case Source::kSignals:
      return OnSignals();
    case Source::kListener:
      return feed_.OnListenerReady();
    case Source::kConnection:
      for (const Command& command : feed_.OnConnectionReady(ready.index)) {
        OnCommand(command, ready.index);
      }
      return;
    case Source::kStdout:
    case Source::kStderr:
    case Source::kFailure:
      break;
  }
  const auto it = processes_.find(ready.index);
  if (it == processes_.end()) return;  // forgotten in this turn
  if (ready.source == Source::kFailure) return it->second->OnFailurePipe();
  it->second->OnOutput(ready.source);
}

void Keeper::OnCommand(const Command& command, uint32_t connection) {
  switch (command.kind) {
    case Command::Kind::kBegin: {
      // By now the daemon has given this program the limit for its processes.
      RaiseOwnFileLimit();
      Processes begun;
      const std::string error = Begin(command.processes, &begun);
      // Before a report of them, and before one runs.
      feed_.Reply(connection, {command.number, error});
      if (!error.empty()) return;
      for (const auto& [index, process] : begun) {
        process->Start();
        // One that could not start settles there.
        sweeping_ = sweeping_ || !process->live();
      }
      processes_.merge(begun);
      return;
    }
    case Command::Kind::kStop:
      for (const ProcessKey& key : command.processes) {
        Process* const process = Find(key);
        if (process == nullptr) continue;
        process->Stop(ExitCause::kStopped, command.grace_ms);
        sweeping_ = sweeping_ || process->killing();
      }
      return;
    case Command::Kind::kForget:
      return Forget(command.processes);
    case Command::Kind::kClose:
      leaving_ = true;
      return;
  }
}

std::string Keeper::Begin(const std::vector<ProcessKey>& keys,
                          Processes* begun) {
  if (leaving_) return "the keeper is about to end";
  std::string error;
  const Process::Context context = {inputs_.place, dir_, poller_, feed_,
                                    group_};
  for (const ProcessKey& key : keys) {
    std::optional<ProcessSpec> spec;
    // KP-4: also what an earlier keeper of this directory began.
    const bool known =
        Find(key) != nullptr || HasFile(dir_, StartedFile(key)) ||
        HasFile(dir_, ExitFile(key)) || HasFile(dir_, EndedFile(key));
    if (!known) spec = ReadSpec(key, &error);
    if (spec) {
      const uint32_t index = next_index_++;
      auto process =
          std::make_unique<Process>(context, *std::move(spec), index);
      error = process->Reserve();
      if (error.empty()) (*begun)[index] = std::move(process);
    }
    if (error.empty() && LiveCount() + begun->size() > kProcessesMax) {
      error = "too many processes: a keeper runs at most " +
              std::to_string(kProcessesMax);
    }
    if (!error.empty()) break;
  }
  if (error.empty()) return "";
  for (const auto& [index, process] : *begun) process->Discard();
  return error;
}

std::optional<ProcessSpec> Keeper::ReadSpec(const ProcessKey& key,
                                            std::string* error) const {
  const std::string path = dir_.path() + "/" + SpecFile(key);
  int error_number = 0;
  const std::optional<std::string> bytes =
      ReadWhole(dir_, SpecFile(key), kSpecBytesMax, &error_number);
  if (!bytes) {
    *error = ErrnoText("read", path, error_number);
    return std::nullopt;
  }
  std::optional<ProcessSpec> spec = ParseSpec(*bytes, error);
  if (spec && spec->key() != key) *error = "it is of another process";
  if (!error->empty()) *error = path + ": " + *error;
  return error->empty() ? spec : std::nullopt;
}

void Keeper::Forget(const std::vector<ProcessKey>& keys) {
  const std::set<ProcessKey> named(keys.begin(), keys.end());
  std::erase_if(processes_, [&](const auto& entry) {
    const Process& process = *entry.second;
    const bool forget = process.state() == Process::State::kSettled &&
                        named.count(process.key()) != 0;
    if (forget) feed_.Forget(process.key());
    return forget;
  });
}

void Keeper::OnSignals() {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof(info)) ==
         static_cast<ssize_t>(sizeof(info))) {
    if (info.ssi_signo == static_cast<uint32_t>(SIGTERM)) OnTerminated();
  }
  Reap();
}

void Keeper::Reap() {
  bool awaited = false;
  while (true) {
    siginfo_t ended{};
    // Not reaped yet: a leader's pid is still needed to name its group.
    if (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        ended.si_pid == 0) {
      return;
    }
    sweeping_ = true;
    if (Process* const process = LeaderOf(ended.si_pid)) {
      // Those that end meanwhile were told by the same.
      if (EndedBySigterm(ended) && !process->stopping() &&
          !std::exchange(awaited, true)) {
        AwaitOwnSigterm();
      }
      process->OnLeaderEnded(ended);
    } else {
      waitid(P_PID, static_cast<id_t>(ended.si_pid), &ended, WEXITED);
    }
  }
}

Process* Keeper::Find(const ProcessKey& key) const {
  for (const auto& [index, process] : processes_) {
    if (process->key() == key) return process.get();
  }
  return nullptr;
}

Process* Keeper::LeaderOf(pid_t pid) const {
  for (const auto& [index, process] : processes_) {
    if (process->live() && process->pid() == pid) return process.get();
  }
  return nullptr;
}

void Keeper::TakeDeadlines() {
  const int64_t now = MonotonicNow_ms();
  // Who ended by itself, if only just, was not ended by the limit.
  for (const auto& [index, process] : processes_) {
    if (process->AtTimeLimit(now)) {
      Reap();
      break;
    }
  }
  for (const auto& [index, process] : processes_) {
    process->TakeDeadline(now);
    sweeping_ = sweeping_ || (process->killing() &&
                              process->state() != Process::State::kSettled);
  }
}

void Keeper::OnTerminated() {
  leaving_ = true;
  for (const auto& [index, process] : processes_) {
    process->Stop(ExitCause::kKeeperStopped, process->spec().grace_ms);
  }
}

void Keeper::AwaitOwnSigterm() {
  sigset_t sigterm;
  sigemptyset(&sigterm);
  sigaddset(&sigterm, SIGTERM);
  const timespec wait = {0, kSigtermsApart_ms * 1'000'000};
  if (sigtimedwait(&sigterm, nullptr, &wait) == SIGTERM) OnTerminated();
}

Process* Keeper::OwnerOf(const ProcessStat& child, bool& untold) const {
  for (const auto& [index, process] : processes_) {
    if (process->pid() != 0 && child.session == process->pid()) {
      return process.get();
    }
  }
  const std::vector<std::string> environment = ReadEnvironment(child.pid);
  untold = environment.empty() && !child.dead();
  // The processes of a cluster inside this one have another keeper's place.
  if (ValueOf(environment, kPlaceVariable) != inputs_.place) return nullptr;
  const std::optional<ProcessKey> key =
      ParseProcessKey(ValueOf(environment, kProcessVariable));
  return key ? Find(*key) : nullptr;
}

bool Keeper::HasChildren() const {
  siginfo_t ignored{};
  return waitid(P_ALL, 0, &ignored, WEXITED | WNOHANG | WNOWAIT) == 0 ||
         errno != ECHILD;
}

size_t Keeper::LiveCount() const {
  return static_cast<size_t>(
      std::count_if(processes_.begin(), processes_.end(),
                    [](const auto& entry) { return entry.second->live(); }));
}

void Keeper::Sweep() {
  // What an ended process leaves becomes our child: without any there is no
  // need to walk all of /proc, which takes milliseconds on a busy node.
  const std::map<pid_t, ProcessStat> processes =
      HasChildren() ? ReadProcesses() : std::map<pid_t, ProcessStat>();
  const bool some_live = LiveCount() > 0;
  std::set<const Process*> not_empty;  // of which something is left
  std::set<const Process*> in_grace;   // SIGCHLD reports their ends
  std::map<pid_t, int> untold_now;
  bool waits = false;  // for these
  const pid_t self = getpid();
  for (const auto& [pid, child] : processes) {
    if (child.parent != self) continue;
    bool untold = false;
    const Process* owner = LeaderOf(pid);
    if (owner == nullptr) owner = OwnerOf(child, untold);
    if (untold) {
      const int sweeps = untold_now[pid] = untold_[pid] + 1;
      waits = waits || sweeps <= kUntoldSweepsMax;
    }
    // Whose it is cannot be told: it may be a live one's.
    const bool spare =
        owner == nullptr ? some_live : owner->live() && !owner->killing();
    if (spare) continue;
    if (owner != nullptr && owner->spares_group() &&
        child.group == owner->pid() && !child.dead()) {
      in_grace.insert(owner);
      continue;
    }
    std::vector<pid_t> tree = DescendantsOf(pid, processes);
    tree.push_back(pid);
    for (const pid_t member : tree) {
      const ProcessStat& process = processes.at(member);
      if (process.dead()) continue;
      not_empty.insert(owner);
      SignalExactly(process, SIGKILL);
    }
  }
  untold_ = std::move(untold_now);
  const bool any_unowned = not_empty.count(nullptr) != 0;
  sweeping_ = !not_empty.empty() || waits;
  for (const auto& [index, process] : processes_) {
    if (process->state() != Process::State::kEnded) continue;
    // What has no owner could be the last one's, whose end has to wait for it.
    const bool last_waits = any_unowned && !some_live;
    if (!waits && not_empty.count(process.get()) == 0 &&
        in_grace.count(process.get()) == 0 && !last_waits) {
      process->Settle();
    }
  }
}

bool Keeper::AllSettled() const {
  return std::all_of(processes_.begin(), processes_.end(),
                     [](const auto& entry) {
                       return entry.second->state() == Process::State::kSettled;
                     });
}

bool Keeper::AllRecorded() const {
  return std::all_of(
      processes_.begin(), processes_.end(),
      [](const auto& entry) { return entry.second->recorded(); });
}

}  // namespace cohort::keeper
