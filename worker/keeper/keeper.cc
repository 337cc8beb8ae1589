#include "worker/keeper/keeper.h"

#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <limits>
#include <set>
#include <utility>

#include "worker/keeper/clocks.h"

namespace cohort::keeper {
namespace {

constexpr size_t kDoneBytesMax = 256;
// Killed processes end in microseconds; only those in uninterruptible sleep
// make us look again and again.
constexpr int kSweepEvery_ms = 20;
// A full disk is not freed faster.
constexpr int kRetryEvery_ms = 1000;
// For a daemon that is alive but slow; one that is dead costs nothing.
constexpr int kLastWords_ms = 2000;
// An init system goes once through all processes, which takes milliseconds.
constexpr long kSigtermsApart_ms = 500;
// A poll takes an int; who waits longer looks again.
constexpr int64_t kWaitMax_ms = 3600 * 1000;
constexpr int64_t kTimeMax_ms = std::numeric_limits<int64_t>::max();

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

}  // namespace

Keeper::Keeper(KeeperInputs inputs)
    : inputs_(std::move(inputs)),
      attempt_dir_(inputs_.attempt_dir),
      feed_(poller_, std::move(inputs_.listener)),
      signals_(TakeSignals()) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  poller_.Watch(signals_.get(), Source::kSignals, 0);
}

std::string Keeper::Prepare() {
  const KeeperSpec& spec = inputs_.spec;
  std::string error = OpenDirectories();
  if (error.empty()) {
    error = done_file_.Reserve(attempt_dir_, "done", kDoneBytesMax);
  }
  const RankProcess::Context context = {spec,    attempt_dir_, log_dir_,
                                        poller_, feed_,        group_};
  for (const RankSpec& rank : spec.ranks) {
    if (!error.empty()) return error;
    ranks_.push_back(std::make_unique<RankProcess>(
        context, rank, static_cast<uint32_t>(ranks_.size())));
    error = ranks_.back()->Reserve();
  }
  if (!error.empty()) return error;
  KeeperReport report;
  report.attempt = spec.attempt;
  report.pid = getpid();
  const std::optional<ProcessStat> stat = ReadProcessStat(getpid());
  report.start_time = stat ? static_cast<int64_t>(stat->start_time) : 0;
  report.boot_id = ReadBootId();
  MakeCgroup(&report);
  const std::string packet = Encode(report);
  error = WriteByRename(attempt_dir_, "keeper", packet, Durability::kCrash);
  if (error.empty()) {
    feed_.Publish(packet);
  } else {
    group_.Remove();
  }
  return error;
}

std::string Keeper::OpenDirectories() {
  if (!attempt_dir_.error().empty()) return attempt_dir_.error();
  const std::string error = MakeDirectories(inputs_.spec.log_dir);
  if (!error.empty()) return error;
  log_dir_ = Directory(inputs_.spec.log_dir);
  return log_dir_.error();
}

void Keeper::MakeCgroup(KeeperReport* report) {
  const KeeperSpec& spec = inputs_.spec;
  report->cgroup_missing = "none was asked for";
  if (spec.cgroup_parent.empty()) return;
  report->cgroup_missing =
      Cgroup::Create(spec.cgroup_parent, CgroupName(spec), &group_);
  report->cgroup = group_.path();
  group_.EnableMemoryBelow();
  if (!report->cgroup_missing.empty()) {
    std::fprintf(stderr, "runs without a cgroup: %s\n",
                 report->cgroup_missing.c_str());
  }
}

void Keeper::Run() {
  for (const auto& rank : ranks_) rank->Start();
  if (const auto& limit_ms = inputs_.spec.time_limit_ms) {
    const int64_t now = MonotonicNow_ms();
    limit_at_ms_ = now + std::min(*limit_ms, kTimeMax_ms - now);
  }
  sweeping_ = true;  // those that could not start settle here
  while (true) {
    if (limit_at_ms_ && MonotonicNow_ms() >= *limit_at_ms_) OnTimeLimit();
    if (kill_at_ms_ && MonotonicNow_ms() >= *kill_at_ms_) KillAll();
    if (sweeping_) Sweep();
    if (AllSettled() && !done_) Finish();
    if (give_up_) return;
    if (done_ && (feed_.AllSent() || MonotonicNow_ms() >= leave_at_ms_)) {
      return;
    }
    if (told_ && feed_.Heard()) return;
    for (const Ready& ready : poller_.Wait(NextTimeout_ms())) Dispatch(ready);
  }
}

int Keeper::NextTimeout_ms() const {
  int64_t timeout = -1;
  const auto within = [&timeout](int64_t ms) {
    ms = std::clamp<int64_t>(ms, 0, kWaitMax_ms);
    timeout = timeout < 0 ? ms : std::min(timeout, ms);
  };
  const int64_t now = MonotonicNow_ms();
  if (limit_at_ms_) within(*limit_at_ms_ - now);
  if (kill_at_ms_) within(*kill_at_ms_ - now);
  if (sweeping_) within(kSweepEvery_ms);
  if (AllSettled()) within(done_ ? leave_at_ms_ - now : kRetryEvery_ms);
  return static_cast<int>(timeout);
}

void Keeper::Dispatch(const Ready& ready) {
  switch (ready.source) {
    case Source::kSignals:
      return OnSignals();
    case Source::kListener:
      return feed_.OnListenerReady();
    case Source::kConnection:
      for (const StopCommand& command : feed_.OnConnectionReady(ready.index)) {
        OnStop(command);
      }
      return;
    case Source::kStdout:
    case Source::kStderr:
      return ranks_[ready.index]->OnOutput(ready.source);
    case Source::kFailure:
      return ranks_[ready.index]->OnFailurePipe();
  }
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
    if (RankProcess* const rank = LiveRank(ended.si_pid)) {
      // Those that end meanwhile were told by the same.
      if (EndedBySigterm(ended) && !std::exchange(awaited, true)) {
        AwaitOwnSigterm();
      }
      rank->OnLeaderEnded(ended);
    } else {
      waitid(P_PID, static_cast<id_t>(ended.si_pid), &ended, WEXITED);
    }
  }
}

RankProcess* Keeper::LiveRank(pid_t leader) const {
  for (const auto& rank : ranks_) {
    if (rank->live() && rank->pid() == leader) return rank.get();
  }
  return nullptr;
}

void Keeper::OnStop(const StopCommand& command) {
  const int64_t kill_at = MonotonicNow_ms() + command.grace_ms;
  const bool first = !stopping();
  if (!kill_at_ms_ || kill_at < *kill_at_ms_) kill_at_ms_ = kill_at;
  if (command.grace_ms == 0) return KillAll();
  if (!first) return;
  for (const auto& rank : ranks_) rank->Stop();
}

void Keeper::OnTimeLimit() {
  limit_at_ms_.reset();
  // Who ended by itself, if only just, was not ended by the limit; nor was who
  // is being stopped already.
  Reap();
  if (stopping()) return;
  for (const auto& rank : ranks_) rank->WillEndBy(ExitCause::kTimeLimit);
  if (!LiveRanks().empty()) OnStop({inputs_.spec.grace_ms});
}

void Keeper::OnTerminated() {
  if (!stopping()) {
    for (const auto& rank : ranks_) rank->WillEndBy(ExitCause::kKeeperStopped);
  }
  OnStop({inputs_.spec.grace_ms});
}

void Keeper::AwaitOwnSigterm() {
  if (stopping()) return;
  sigset_t sigterm;
  sigemptyset(&sigterm);
  sigaddset(&sigterm, SIGTERM);
  const timespec wait = {0, kSigtermsApart_ms * 1'000'000};
  if (sigtimedwait(&sigterm, nullptr, &wait) == SIGTERM) OnTerminated();
}

void Keeper::KillAll() {
  give_up_ = AllSettled() && !done_;
  killing_ = true;
  sweeping_ = true;
  kill_at_ms_.reset();
  for (const auto& rank : ranks_) rank->Kill();
  group_.Kill();
}

int Keeper::OwnerOf(const ProcessStat& child) const {
  for (const auto& rank : ranks_) {
    if (rank->pid() != 0 && child.session == rank->pid()) return rank->rank();
  }
  const std::vector<std::string> environment = ReadEnvironment(child.pid);
  // Ranks of a cluster inside this rank have numbers of their own.
  if (!Carries(environment, kAttemptVariable, inputs_.spec.attempt)) return -1;
  for (const auto& rank : ranks_) {
    if (Carries(environment, kRankVariable, std::to_string(rank->rank()))) {
      return rank->rank();
    }
  }
  return -1;
}

bool Keeper::HasChildren() const {
  siginfo_t ignored{};
  return waitid(P_ALL, 0, &ignored, WEXITED | WNOHANG | WNOWAIT) == 0 ||
         errno != ECHILD;
}

std::set<int> Keeper::LiveRanks() const {
  std::set<int> live;
  for (const auto& rank : ranks_) {
    if (rank->live()) live.insert(rank->rank());
  }
  return live;
}

void Keeper::Sweep() {
  // What an ended rank leaves becomes our child: without any there is no need
  // to walk all of /proc, which takes milliseconds on a busy node.
  const std::map<pid_t, ProcessStat> processes =
      HasChildren() ? ReadProcesses() : std::map<pid_t, ProcessStat>();
  const std::set<int> live_ranks = LiveRanks();
  std::set<int> not_empty;  // ended ranks of which a process is left
  for (const auto& [pid, child] : processes) {
    if (child.parent != getpid()) continue;
    const RankProcess* const leader = LiveRank(pid);
    const int owner = leader != nullptr ? leader->rank() : OwnerOf(child);
    // Whose it is cannot be told: it may be a live rank's.
    const bool spare =
        owner < 0 ? !live_ranks.empty() : live_ranks.count(owner) != 0;
    if (spare && !killing_) continue;
    std::vector<pid_t> tree = DescendantsOf(pid, processes);
    tree.push_back(pid);
    for (const pid_t member : tree) {
      const ProcessStat& process = processes.at(member);
      if (process.dead()) continue;
      not_empty.insert(owner);
      SignalExactly(process, SIGKILL);
    }
  }
  const bool strays = not_empty.count(-1) != 0;
  sweeping_ = !not_empty.empty();
  for (const auto& rank : ranks_) {
    if (rank->state() != RankProcess::State::kEnded) continue;
    // A stray could be the last rank's: `done` has to wait for it.
    const bool last_waits = strays && live_ranks.empty();
    if (not_empty.count(rank->rank()) == 0 && !last_waits) rank->Settle();
  }
}

bool Keeper::AllSettled() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) {
    return rank->state() == RankProcess::State::kSettled;
  });
}

void Keeper::Finish() {
  bool recorded = true;
  for (const auto& rank : ranks_) {
    recorded = rank->RetryExitRecord() && recorded;
  }
  const std::string packet =
      Encode(DoneReport{static_cast<int>(ranks_.size())});
  if (recorded && done_file_.Commit(packet).empty()) {
    const std::string error = done_file_.Sync();
    if (!error.empty()) std::fprintf(stderr, "%s\n", error.c_str());
    done_ = true;
    leave_at_ms_ = MonotonicNow_ms() + kLastWords_ms;
  }
  if (std::exchange(told_, true)) return;
  group_.Remove();
  feed_.Publish(packet);
}

}  // namespace cohort::keeper
