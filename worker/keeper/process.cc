#include "worker/keeper/process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <optional>
#include <utility>

#include "worker/keeper/clocks.h"
#include "worker/keeper/proc.h"

namespace cohort::keeper {
namespace {

// Of one pipe at a time, so that a process that prints without end does not
// keep the others waiting.
constexpr size_t kTurnBytes = 1 << 20;
// What a leader wrote before it ended is in the pipe, which holds less; only
// descendants that write on could fill it again and again.
constexpr size_t kLastBytes = 8 << 20;
constexpr size_t kExitBytesMax = kMessageBytesMax + 1024;

// `ms` after `now_ms`, where no clock gets beyond.
int64_t After(int64_t now_ms, int64_t ms) {
  return now_ms + std::min(ms, std::numeric_limits<int64_t>::max() - now_ms);
}

void Print(const std::string& error) {
  if (!error.empty()) std::fprintf(stderr, "%s\n", error.c_str());
}

}  // namespace

Process::Process(const Context& context, ProcessSpec spec, uint32_t index)
    : context_(context),
      spec_(std::move(spec)),
      index_(index),
      stdout_{UniqueFd(),
              LogWriter(log_dir_, LogStem(spec_.slot, spec_.incarnation, false),
                        {})},
      stderr_{UniqueFd(),
              LogWriter(log_dir_, LogStem(spec_.slot, spec_.incarnation, true),
                        {})} {
  report_.process = spec_.key();
}

std::string Process::Reserve() {
  std::string error = MakeDirectories(spec_.log_dir);
  if (!error.empty()) return error;
  log_dir_ = Directory(spec_.log_dir);
  error = log_dir_.error();
  if (error.empty()) {
    error =
        exit_file_.Reserve(context_.keeper_dir, ExitFile(key()), kExitBytesMax);
  }
  if (error.empty()) error = stdout_.log.Reserve();
  if (error.empty()) error = stderr_.log.Reserve();
  if (!error.empty()) Discard();
  return error;
}

void Process::Discard() {
  exit_file_.Discard();
  stdout_.log.Discard();
  stderr_.log.Discard();
}

void Process::Start() {
  EnterCgroup();
  started_ms_ = MonotonicNow_ms();
  if (spec_.time_limit_ms) {
    limit_at_ms_ = After(started_ms_, *spec_.time_limit_ms);
  }
  const UniqueFd cgroup = group_.Open();
  ChildEnds ends;
  ChildFailure failure;
  const std::optional<pid_t> pid =
      StartChild(spec_, context_.place, cgroup.get(), &ends, &failure);
  if (!pid) return OnCannotRun(failure);
  pid_ = *pid;
  stdout_.pipe = std::move(ends.stdout_pipe);
  stderr_.pipe = std::move(ends.stderr_pipe);
  failure_pipe_ = std::move(ends.failure_pipe);
  context_.poller.Watch(stdout_.pipe.get(), Source::kStdout, index_);
  context_.poller.Watch(stderr_.pipe.get(), Source::kStderr, index_);
  context_.poller.Watch(failure_pipe_.get(), Source::kFailure, index_);
}

void Process::EnterCgroup() {
  const std::string& parent = context_.keeper_group.path();
  if (parent.empty()) return;
  const std::string name = CgroupName(key());
  const std::string error = Cgroup::Create(parent, name, &group_);
  if (!error.empty()) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), error.c_str());
  }
  group_.Limit(
      {.memory_bytes = spec_.memory_bytes, .cpu_weight = spec_.cpu_weight});
}

void Process::OnFailurePipe() {
  if (!failure_pipe_) return;
  bool closed = false;
  const std::optional<ChildFailure> failure =
      ReadFailure(failure_pipe_.get(), &closed);
  if (!closed) return;
  context_.poller.Forget(failure_pipe_.get());
  failure_pipe_.Reset();
  if (failure) {
    report_.cause = ExitCause::kCannotRun;
    report_.message = Describe(*failure, spec_);
  } else {
    OnRunning();
  }
}

void Process::OnRunning() {
  state_ = State::kRunning;
  StartedReport started;
  started.process = key();
  started.pid = pid_;
  const std::optional<ProcessStat> stat = ReadProcessStat(pid_);
  started.start_time = stat ? static_cast<int64_t>(stat->start_time) : 0;
  const std::string packet = Encode(started);
  // Told all the same; only the search for leftovers knows less without it.
  Print(WriteByRename(context_.keeper_dir, StartedFile(key()), packet,
                      Durability::kCrash));
  context_.feed.Publish(key(), packet);
}

void Process::OnCannotRun(const ChildFailure& failure) {
  report_.cause = ExitCause::kCannotRun;
  report_.message = Describe(failure, spec_);
  report_.exit_code = failure.exit_code();
  End();
}

void Process::OnOutput(Source source) { Drain(OutputOf(source), kTurnBytes); }

void Process::Drain(Output& output, size_t bytes_max) {
  static char buffer[256 << 10];  // one thread, and too large for its stack
  for (size_t total = 0; output.pipe && total < bytes_max;) {
    const ssize_t n = read(output.pipe.get(), buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
      context_.poller.Forget(output.pipe.get());
      output.pipe.Reset();
      return;
    }
    Log(output, buffer, static_cast<size_t>(n));
    total += static_cast<size_t>(n);
  }
}

void Process::Log(Output& output, const char* data, size_t size) {
  const bool turned = std::exchange(last_read_, &output) != &output;
  output.log.Append(data, size, {WallNow_ns() / 1000, turned});
}

void Process::OnLeaderEnded(const siginfo_t& how) {
  OnFailurePipe();
  // A shell dies of the SIGTERM that its child takes to save its work.
  spares_group_ = kill_at_ms_ && !killing_;
  if (!spares_group_) {
    // As long as the zombie is there its pid can name no other group.
    SignalGroup(SIGKILL);
    group_.Kill();
  }
  report_.oom_killed = group_.OomKills() > 0 && how.si_status == SIGKILL &&
                       how.si_code != CLD_EXITED;
  // Else the machine had none left, which may be the fault of others.
  if (report_.oom_killed && group_.OutOfOwnMemory() > 0) {
    report_.message = "it needed more than the " +
                      std::to_string(spec_.memory_bytes >> 20) +
                      " MiB of memory that it asked for (--memory)";
  }
  if (how.si_code == CLD_EXITED) {
    report_.exit_code = how.si_status;
  } else {
    report_.signal = how.si_status;
  }
  siginfo_t reaped;
  waitid(P_PID, static_cast<id_t>(pid_), &reaped, WEXITED);
  Drain(stdout_, kLastBytes);
  Drain(stderr_, kLastBytes);
  End();
}

void Process::End() {
  state_ = State::kEnded;
  report_.ended_wall_ns = WallNow_ns();
  report_.ran_ms = MonotonicNow_ms() - started_ms_;
  if (!report_.message.empty()) {
    const std::string line = "cohort-keeper: " + report_.message + "\n";
    Log(stderr_, line.data(), line.size());
  }
  const std::string packet = Encode(report_);
  const std::string error = exit_file_.Commit(packet);
  Print(error);
  // First told, then synced: recovery waits for the former, and what a loss of
  // power could take belongs to no process by then.
  context_.feed.Publish(key(), packet);
  // Never tried again: after a failed fsync the kernel has forgotten the bytes.
  if (error.empty()) Print(exit_file_.Sync());
}

void Process::Stop(ExitCause cause, int64_t grace_ms) {
  const int64_t kill_at = After(MonotonicNow_ms(), grace_ms);
  const bool first = !stopping();
  if (!kill_at_ms_ || kill_at < *kill_at_ms_) kill_at_ms_ = kill_at;
  if (first && live()) SetCause(cause);
  if (grace_ms == 0) return Kill();
  if (first && live()) SignalGroup(SIGTERM);
}

std::optional<int64_t> Process::deadline_ms() const {
  if (state_ == State::kSettled) return std::nullopt;
  if (!limit_at_ms_ || !kill_at_ms_) {
    return limit_at_ms_ ? limit_at_ms_ : kill_at_ms_;
  }
  return std::min(*limit_at_ms_, *kill_at_ms_);
}

bool Process::AtTimeLimit(int64_t now_ms) const {
  return limit_at_ms_ && now_ms >= *limit_at_ms_;
}

void Process::TakeDeadline(int64_t now_ms) {
  if (AtTimeLimit(now_ms)) {
    limit_at_ms_.reset();
    if (live() && !stopping()) Stop(ExitCause::kTimeLimit, spec_.grace_ms);
  }
  if (kill_at_ms_ && now_ms >= *kill_at_ms_) Kill();
}

void Process::Kill() {
  killing_ = true;
  kill_at_ms_.reset();
  if (state_ != State::kSettled) group_.Kill();
  if (!live()) return;  // the group's number may be another's by now
  SetCause(ExitCause::kKilled);
  SignalGroup(SIGKILL);
}

void Process::SetCause(ExitCause cause) {
  if (report_.cause == ExitCause::kCannotRun ||
      report_.cause == ExitCause::kTimeLimit ||
      report_.cause == ExitCause::kKeeperStopped) {
    return;
  }
  report_.cause = cause;
}

void Process::SignalGroup(int signal) {
  if (kill(-pid_, signal) == 0) return;
  // Before the child's setsid there is no group yet.
  kill(pid_, signal);
}

void Process::Settle() {
  for (Output* output : {&stdout_, &stderr_}) {
    Drain(*output, kLastBytes);
    // Still open: somebody outside holds it.  It is not this process's any
    // more.
    if (output->pipe) context_.poller.Forget(output->pipe.get());
    output->pipe.Reset();
    output->log.Close();
  }
  log_dir_ = Directory();
  group_.Remove();
  state_ = State::kSettled;
  const int dir = context_.keeper_dir.fd();
  recorded_ = renameat(dir, ExitFile(key()).c_str(), dir,
                       EndedFile(key()).c_str()) == 0;
  context_.feed.Publish(key(), Encode(EndedReport{key()}));
}

}  // namespace cohort::keeper
