#include "worker/keeper/rank_process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <optional>
#include <utility>

#include "worker/keeper/clocks.h"
#include "worker/keeper/proc.h"

namespace cohort::keeper {
namespace {

// Of one pipe at a time, so that a rank that prints without end does not keep
// the others waiting.
constexpr size_t kTurnBytes = 1 << 20;
// What a leader wrote before it ended is in the pipe, which holds less; only
// descendants that write on could fill it again and again.
constexpr size_t kLastBytes = 8 << 20;
constexpr size_t kExitBytesMax = kMessageBytesMax + 1024;

}  // namespace

RankProcess::RankProcess(const Context& context, const RankSpec& spec,
                         uint32_t index)
    : context_(context),
      spec_(spec),
      index_(index),
      stdout_{UniqueFd(),
              LogWriter(context.log_dir, LogStem(spec.rank, false), {})},
      stderr_{UniqueFd(),
              LogWriter(context.log_dir, LogStem(spec.rank, true), {})} {
  report_.rank = spec.rank;
}

std::string RankProcess::Reserve() {
  std::string error = exit_file_.Reserve(context_.attempt_dir,
                                         ExitFile(spec_.rank), kExitBytesMax);
  if (error.empty()) error = stdout_.log.Reserve();
  if (error.empty()) error = stderr_.log.Reserve();
  return error;
}

void RankProcess::Start() {
  EnterCgroup();
  started_ms_ = MonotonicNow_ms();
  const UniqueFd procs = group_.OpenProcs();
  ChildEnds ends;
  ChildFailure failure;
  const std::optional<pid_t> pid =
      StartChild(spec_, context_.spec, procs.get(), &ends, &failure);
  if (!pid) return OnCannotRun(failure);
  pid_ = *pid;
  stdout_.pipe = std::move(ends.stdout_pipe);
  stderr_.pipe = std::move(ends.stderr_pipe);
  failure_pipe_ = std::move(ends.failure_pipe);
  context_.poller.Watch(stdout_.pipe.get(), Source::kStdout, index_);
  context_.poller.Watch(stderr_.pipe.get(), Source::kStderr, index_);
  context_.poller.Watch(failure_pipe_.get(), Source::kFailure, index_);
}

void RankProcess::EnterCgroup() {
  const std::string& parent = context_.attempt_group.path();
  if (parent.empty()) return;
  const std::string error =
      Cgroup::Create(parent, "rank-" + std::to_string(spec_.rank), &group_);
  if (!error.empty()) {
    std::fprintf(stderr, "rank %d: %s\n", spec_.rank, error.c_str());
  }
}

void RankProcess::OnFailurePipe() {
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

void RankProcess::OnRunning() {
  state_ = State::kRunning;
  StartedReport started;
  started.rank = spec_.rank;
  started.pid = pid_;
  const std::optional<ProcessStat> stat = ReadProcessStat(pid_);
  started.start_time = stat ? static_cast<int64_t>(stat->start_time) : 0;
  const std::string packet = Encode(started);
  const std::string error =
      WriteByRename(context_.attempt_dir, StartedFile(spec_.rank), packet,
                    Durability::kCrash);
  // Told all the same; only the search for leftovers knows less without it.
  if (!error.empty()) std::fprintf(stderr, "%s\n", error.c_str());
  context_.feed.Publish(packet);
}

void RankProcess::OnCannotRun(const ChildFailure& failure) {
  report_.cause = ExitCause::kCannotRun;
  report_.message = Describe(failure, spec_);
  report_.exit_code = failure.exit_code();
  End();
}

void RankProcess::OnOutput(Source source) {
  Drain(OutputOf(source), kTurnBytes);
}

void RankProcess::Drain(Output& output, size_t bytes_max) {
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
    output.log.Append(buffer, static_cast<size_t>(n));
    total += static_cast<size_t>(n);
  }
}

void RankProcess::OnLeaderEnded(const siginfo_t& how) {
  OnFailurePipe();
  // As long as the zombie is there its pid can name no other group.
  SignalGroup(SIGKILL);
  group_.Kill();
  report_.oom_killed = group_.OomKills() > 0 && how.si_status == SIGKILL &&
                       how.si_code != CLD_EXITED;
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

void RankProcess::End() {
  state_ = State::kEnded;
  report_.ended_wall_ns = WallNow_ns();
  report_.ran_ms = MonotonicNow_ms() - started_ms_;
  if (!report_.message.empty()) {
    const std::string line = "cohort-keeper: " + report_.message + "\n";
    stderr_.log.Append(line.data(), line.size());
  }
  const std::string packet = Encode(report_);
  const std::string error = exit_file_.Commit(packet);
  if (!error.empty()) std::fprintf(stderr, "%s\n", error.c_str());
  // First told, then synced: recovery waits for the former, and what a loss of
  // power could take is no process's any more.
  context_.feed.Publish(packet);
  exit_recorded_ = error.empty();
  if (exit_recorded_) SyncExitRecord();
}

void RankProcess::SyncExitRecord() {
  // Never tried again: after a failed fsync the kernel has forgotten the bytes.
  const std::string error = exit_file_.Sync();
  if (!error.empty()) std::fprintf(stderr, "%s\n", error.c_str());
}

bool RankProcess::RetryExitRecord() {
  if (exit_recorded_) return true;
  exit_recorded_ = exit_file_.Commit(Encode(report_)).empty();
  if (exit_recorded_) SyncExitRecord();
  return exit_recorded_;
}

void RankProcess::Stop() {
  if (!live()) return;
  SetCause(ExitCause::kStopped);
  SignalGroup(SIGTERM);
}

void RankProcess::WillEndBy(ExitCause cause) {
  if (live()) SetCause(cause);
}

void RankProcess::Kill() {
  if (!live()) return;
  SetCause(ExitCause::kKilled);
  SignalGroup(SIGKILL);
  group_.Kill();
}

void RankProcess::SetCause(ExitCause cause) {
  if (report_.cause == ExitCause::kCannotRun ||
      report_.cause == ExitCause::kTimeLimit ||
      report_.cause == ExitCause::kKeeperStopped) {
    return;
  }
  report_.cause = cause;
}

void RankProcess::SignalGroup(int signal) {
  if (kill(-pid_, signal) == 0) return;
  // Before the child's setsid there is no group yet.
  kill(pid_, signal);
}

void RankProcess::Settle() {
  for (Output* output : {&stdout_, &stderr_}) {
    Drain(*output, kLastBytes);
    // Still open: somebody outside holds it.  It is not the rank's any more.
    if (output->pipe) context_.poller.Forget(output->pipe.get());
    output->pipe.Reset();
    output->log.Close();
  }
  group_.Remove();
  state_ = State::kSettled;
}

}  // namespace cohort::keeper
