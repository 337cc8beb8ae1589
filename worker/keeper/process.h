#pragma once

#include <sys/types.h>

#include <csignal>
#include <cstdint>
#include <optional>
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

// One process: its leader, its output, its records.
//
//   kStarting -> kRunning -> kEnded -> kSettled
//   kStarting -> kEnded (cannot run, or killed before its program)
//
// Owned by Keeper, which tells it what the loop sees.  Thread-compatible.
class Process {
 public:
  enum class State { kStarting, kRunning, kEnded, kSettled };

  // What a process uses of its keeper; must outlive it.
  struct Context {
    const std::string& place;
    const Directory& keeper_dir;
    Poller& poller;
    EventFeed& feed;
    const Cgroup& keeper_group;
  };

  Process(const Context& context, ProcessSpec spec, uint32_t index);

  // Opens its log directory and takes the disk space of its records.  Error
  // text when that cannot be: then nothing of it is left but the directory.
  std::string Reserve();
  // Gives back what Reserve took.
  void Discard();

  // Starts the child, or ends it with the reason.
  void Start();

  // The failure pipe has something to say.
  void OnFailurePipe();
  // Output is there, or its end.
  void OnOutput(Source source);
  // The leader is a zombie: kills its group and session, unless they have a
  // grace, reaps it, reports.
  void OnLeaderEnded(const siginfo_t& how);

  // SIGTERM to its group, and a Kill after `grace_ms`, at once with 0.  A later
  // Stop can only shorten the grace, and does not change the cause.
  void Stop(ExitCause cause, int64_t grace_ms);
  // When TakeDeadline has something to do (monotonic).
  std::optional<int64_t> deadline_ms() const;
  bool AtTimeLimit(int64_t now_ms) const;
  // TL-1: stops it at its time limit, at most once, and only where it would
  // have run on.  Kills it when its grace is over.
  void TakeDeadline(int64_t now_ms);

  // No process of it is left: ends its logs and tells so.  Only in kEnded.
  void Settle();
  State state() const { return state_; }
  bool live() const {
    return state_ == State::kStarting || state_ == State::kRunning;
  }
  bool stopping() const { return kill_at_ms_ || killing_; }
  // Nothing of its tree is to be spared.
  bool killing() const { return killing_; }
  // Whether those of its group that outlive the leader have their grace yet.
  bool spares_group() const { return spares_group_ && !killing_; }
  // Its end is on disk.  False for ever when the disk refused it.
  bool recorded() const { return recorded_; }
  pid_t pid() const { return pid_; }  // 0 when it never had one
  const ProcessKey& key() const { return report_.process; }
  const ProcessSpec& spec() const { return spec_; }

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
  // SIGKILL to its group and cgroup.
  void Kill();
  // Unless it is known already why it ends.
  void SetCause(ExitCause cause);
  // Reads on until the pipe is empty or `bytes_max` were read.
  void Drain(Output& output, size_t bytes_max);
  void Log(Output& output, const char* data, size_t size);
  void SignalGroup(int signal);
  Output& OutputOf(Source source) {
    return source == Source::kStderr ? stderr_ : stdout_;
  }

  const Context context_;
  const ProcessSpec spec_;
  const uint32_t index_;
  // Kept open: it may be renamed, with its state directory.
  Directory log_dir_;
  State state_ = State::kStarting;
  pid_t pid_ = 0;
  Cgroup group_;
  Output stdout_;
  Output stderr_;
  const Output* last_read_ = nullptr;
  UniqueFd failure_pipe_;
  ReservedFile exit_file_;
  bool recorded_ = false;
  int64_t started_ms_ = 0;              // monotonic
  std::optional<int64_t> limit_at_ms_;  // monotonic; until it is reached
  std::optional<int64_t> kill_at_ms_;   // monotonic; a Stop's grace ends
  bool killing_ = false;
  bool spares_group_ = false;  // the leader ended within a Stop's grace
  ExitReport report_;          // as far as it is known
};

}  // namespace cohort::keeper
