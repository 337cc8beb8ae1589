#pragma once

#include <sys/types.h>

#include <csignal>
#include <cstdint>
#include <string>

#include "worker/keeper/cgroup.h"
#include "worker/keeper/child.h"
#include "worker/keeper/event_feed.h"
#include "worker/keeper/files.h"
#include "worker/keeper/log_segments.h"
#include "worker/keeper/poller.h"
#include "worker/keeper/reports.h"
#include "worker/keeper/spec.h"

namespace cohort::keeper {

// One rank: its leader process, its output, its records.
//
//   kStarting -> kRunning -> kEnded -> kSettled
//   kStarting -> kEnded (cannot run, or killed before its program)
//
// Owned by Keeper, which tells it what the loop sees.  Thread-compatible.
class RankProcess {
 public:
  enum class State { kStarting, kRunning, kEnded, kSettled };

  // What a rank uses of its keeper; must outlive it.
  struct Context {
    const KeeperSpec& spec;
    const Directory& attempt_dir;
    const Directory& log_dir;
    Poller& poller;
    EventFeed& feed;
    const Cgroup& attempt_group;
  };

  RankProcess(const Context& context, const RankSpec& spec, uint32_t index);

  // Takes the disk space of its records.  Error text when there is none.
  std::string Reserve();

  // Starts the child, or ends the rank with the reason.
  void Start();

  // The failure pipe has something to say.
  void OnFailurePipe();
  // Output is there, or its end.
  void OnOutput(Source source);
  // The leader is a zombie: kills its group and session, reaps it, reports.
  void OnLeaderEnded(const siginfo_t& how);

  // What ends it from now on is this, whatever it ends of.
  void WillEndBy(ExitCause cause);
  // SIGTERM to its group.
  void Stop();
  // SIGKILL to its group and cgroup.
  void Kill();

  // No process of it is left: ends its logs.  Only in kEnded.
  void Settle();

  // Writes what a full or broken disk refused before.  False while it still
  // does.
  bool RetryExitRecord();

  State state() const { return state_; }
  bool live() const {
    return state_ == State::kStarting || state_ == State::kRunning;
  }
  pid_t pid() const { return pid_; }  // 0 when it never had one
  int rank() const { return spec_.rank; }

 private:
  struct Output {
    UniqueFd pipe;
    LogWriter log;
  };

  void EnterCgroup();
  void OnRunning();
  void OnCannotRun(const ChildFailure& failure);
  // Reports and records the end; report_ is filled in.
  void End();
  void SyncExitRecord();
  // Unless it is known already why the rank ends.
  void SetCause(ExitCause cause);
  // Reads on until the pipe is empty or `bytes_max` were read.
  void Drain(Output& output, size_t bytes_max);
  void SignalGroup(int signal);
  Output& OutputOf(Source source) {
    return source == Source::kStderr ? stderr_ : stdout_;
  }

  const Context context_;
  const RankSpec& spec_;
  const uint32_t index_;
  State state_ = State::kStarting;
  pid_t pid_ = 0;
  Cgroup group_;
  Output stdout_;
  Output stderr_;
  UniqueFd failure_pipe_;
  ReservedFile exit_file_;
  bool exit_recorded_ = false;
  int64_t started_ms_ = 0;  // monotonic
  ExitReport report_;       // as far as it is known
};

}  // namespace cohort::keeper
