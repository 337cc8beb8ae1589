#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "worker/keeper/files.h"
#include "worker/keeper/reports.h"
#include "worker/keeper_dir.h"
#include "worker/keeper_host.h"
#include "worker/keeper_spawn.h"
#include "worker/process_tree.h"

namespace cohort::worker {

// One keeper as KeeperClient's thread sees it: the connection to it, its pidfd,
// and what is known of its processes from its directory and its packets
// together, so that either may fail.
//
//   kNone -> kStarting (Begin: spawned, no packet yet) -> kRunning -> kNone
//   kNone -> kRunning (Adopt)
//
// At the edge: touches disk, sockets and processes.  Thread-compatible.
class KeeperLink {
 public:
  using EventSink = std::function<void(const KeeperEvent&)>;

  // The children of this process, at this moment.
  using AskChildren = std::function<Children()>;

  // `sink` gets what KeeperHost's listener is to hear.  Where orphans of a dead
  // keeper come to this process `children` tells which are none; else null.
  // `logs_dir` as KeeperClientOptions has it.
  KeeperLink(std::string id, KeeperStart start, std::string logs_dir,
             EventSink sink, AskChildren children);

  KeeperLink(const KeeperLink&) = delete;
  KeeperLink& operator=(const KeeperLink&) = delete;

  // As KeeperHost has them; each `done` runs once, maybe inside the call.
  void Begin(const std::vector<ProcessSpec>& specs,
             KeeperHost::DoneCallback done);
  void Close(KeeperHost::DoneCallback done);
  absl::Status Forget(const std::vector<ProcessKey>& which);
  // SIGKILL at `kill_at` (monotonic), SIGTERM now.  A keeper under which a
  // process has not ended soon after that is killed, which ends them all.
  void Stop(const std::vector<ProcessKey>& which, absl::Duration kill_at);

  // Reads the directory.
  absl::StatusOr<AdoptedKeeper> Adopt();
  // After Adopt, once its result is on its way: tells what was read, and goes
  // on from there.
  void FollowAdopted();

  // For the poll loop: descriptors (or -1) and when to wake up anyway.
  int connection() const { return connection_.get(); }
  int pidfd() const { return pidfd_.get(); }
  // 0 when the keeper is not this process's child.
  pid_t keeper_pid() const { return keeper_pid_; }
  absl::Duration wake_at() const;

  void OnConnectionReady();
  void OnPidfdReady();
  void OnWake();

  // Nothing is left to keep.
  bool closed() const { return closed_; }

 private:
  enum class State { kNone, kStarting, kRunning };
  struct Process {
    ProcessRecords records;
    bool told_started = false;
    bool told_exited = false;
    bool told_ended = false;
    std::optional<absl::Duration> kill_at;  // a Stop was asked for
  };
  struct PendingBegin {
    std::vector<ProcessKey> which;
    absl::Duration deadline;
    // Null for what an earlier daemon was about to begin: what it cannot begin
    // is lost.
    KeeperHost::DoneCallback done;
  };

  absl::Status Spawn();
  void AddBegin(PendingBegin begin);
  void SendBegin(int64_t number, const PendingBegin& begin);
  void Refuse(PendingBegin begin, const absl::Status& status);
  void RefuseAll(const absl::Status& status);
  void FinishClose();
  void Send(keeper::Command command);
  void SendStop(const std::vector<ProcessKey>& which, absl::Duration kill_at);

  void OnPacket(const std::string& bytes);
  void OnHello(const keeper::KeeperReport& hello);
  void OnAnswer(const keeper::Answer& answer);
  // The records of the process that a report is about; null when it is not to
  // be told: then ends it, should it run.
  ProcessRecords* ReportedOn(const ProcessKey& key);
  // Reads the directory again, after the connection or the keeper was lost.
  void LookAgain();
  void Reconnect();
  void TryLater();
  void WatchKeeper(const keeper::KeeperReport& keeper);
  void KillKeeper();
  absl::Duration TimeoutEnds() const;

  void Learn(const KeeperSurvey& survey);
  // Tells what is known and was not told.
  void TellAll();
  // The keeper is dead, for this reason: ends what it left, and with it all
  // processes that have not ended.
  void OnKeeperLost(const std::string& why);
  void EndLost(const ProcessKey& process, const std::string& why);
  void Seal(const ProcessKey& process);
  std::string LossOf(const KeeperSurvey& survey) const;
  bool AllEnded() const;
  std::string EndLeftovers();
  // Says how it ended: "status 2".
  std::string Reap();
  // Until a keeper that is ending has ended.
  void AwaitKeeper();

  const std::string id_;
  const KeeperStart start_;
  const std::string logs_dir_;
  const EventSink sink_;
  const AskChildren children_;

  State state_ = State::kNone;
  bool closed_ = false;
  std::map<ProcessKey, Process> processes_;  // that are not forgotten
  std::map<int64_t, PendingBegin> begins_;   // that were not answered
  int64_t next_begin_ = 1;
  KeeperHost::DoneCallback close_done_;  // while it is being closed
  absl::Duration close_by_;
  absl::Status start_error_;             // what the failing start is to report
  std::optional<KeeperSurvey> adopted_;  // between Adopt and FollowAdopted
  std::optional<keeper::KeeperReport> keeper_;
  bool keeper_died_ = false;
  bool keeper_killed_ = false;
  bool told_unreadable_ = false;
  keeper::UniqueFd connection_;
  keeper::UniqueFd pidfd_;
  pid_t keeper_pid_ = 0;  // while it is our child
  absl::Duration retry_at_ = absl::InfiniteDuration();
  absl::Duration retry_delay_;
};

}  // namespace cohort::worker
