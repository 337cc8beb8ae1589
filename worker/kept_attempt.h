#pragma once

#include <sys/types.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "worker/attempt_dir.h"
#include "worker/keeper/files.h"
#include "worker/keeper/reports.h"
#include "worker/keeper_host.h"
#include "worker/process_identity.h"
#include "worker/process_tree.h"

namespace cohort::worker {

// One attempt as KeeperClient's thread sees it: the connection to its keeper,
// the keeper's pidfd, and what has been told already.
//
//   new -> kBorn (Start: waiting for hello) -> kRunning -> kEnded
//   new -> kRunning or kEnded (Adopt)
//
// At the edge: touches disk, sockets and processes.  Thread-compatible.
class KeptAttempt {
 public:
  using EventSink = std::function<void(const KeeperEvent&)>;

  // The children of this process, at this moment.
  using AskChildren = std::function<Children()>;

  // `sink` gets what KeeperHost's listener is to hear.  Where orphans of a dead
  // keeper come to this process `children` tells which are none; else null.
  // `logs_dir` and `node_runtime_dir` as KeeperClientOptions has them.
  KeptAttempt(std::string name, std::string dir, std::string logs_dir,
              const std::string& node_runtime_dir, EventSink sink,
              AskChildren children);
  ~KeptAttempt();

  KeptAttempt(const KeptAttempt&) = delete;
  KeptAttempt& operator=(const KeptAttempt&) = delete;

  // Spawns the keeper; `done` once it has taken the spec, or has not until
  // `deadline` (monotonic).  Afterwards failed() if it has not.
  void Start(const std::string& program, const KeeperSpec& spec,
             absl::Duration deadline, KeeperHost::DoneCallback done);

  // Reads the directory and goes on from there.
  absl::StatusOr<AdoptedAttempt> Adopt();
  // After Adopt, once its result is on its way: tells the story so far.
  void TellStory();

  // SIGKILL at `kill_at` (monotonic), SIGTERM now.  A keeper that has not ended
  // everything soon after `kill_at` is killed, which ends its ranks.
  void Stop(absl::Duration kill_at);

  // For the poll loop: descriptors (or -1) and when to wake up anyway.
  int connection() const { return connection_.get(); }
  int pidfd() const { return pidfd_.get(); }
  // 0 when the keeper is not this process's child.
  pid_t keeper_pid() const { return keeper_pid_; }
  absl::Duration wake_at() const { return std::min(wake_at_, patience_ends_); }

  void OnConnectionReady();
  void OnPidfdReady();
  void OnWake();

  // Everything was told.
  bool ended() const { return state_ == State::kEnded; }
  // Start did not succeed: nothing is left to keep.
  bool failed() const { return failed_; }

 private:
  enum class State { kBorn, kRunning, kEnded };

  absl::Status Spawn(const std::string& program, const KeeperSpec& spec);
  void FinishStart(const absl::Status& status);
  void OnPacket(const std::string& bytes);
  void OnHello(const keeper::KeeperReport& hello);
  // Reads the directory again, after the connection or the keeper was lost.
  void LookAgain();
  // The same where the directory has nothing to say, and why.
  void GoOnWithout(const absl::Status& directory);
  void Follow(const AttemptSurvey& survey);
  void Reconnect();
  void TryLater();
  void WatchKeeper(const keeper::KeeperReport& keeper);
  void SendStop();
  void KillKeeper();
  // The directory as it is now.
  absl::StatusOr<AttemptSurvey> Survey() const;
  void Seal(const AttemptSurvey& survey);
  void TellRecords(const AttemptSurvey& survey);
  void TellStarted(const keeper::StartedReport& report);
  void TellExited(int rank, const ExitStatus& status);
  void TellLost(const AttemptSurvey& survey);
  void TellEnd(const KeeperEvent& event);
  LeftoverQuery QueryFor(const AttemptSurvey& survey) const;
  std::string EndLeftovers(const AttemptSurvey& survey);
  // Says how it ended: "status 2".
  std::string Reap();
  // Until a keeper that is ending has ended.
  void AwaitKeeper();

  const std::string name_;
  const std::string dir_;
  const std::string logs_dir_;
  const EventSink sink_;
  const AskChildren children_;

  State state_ = State::kRunning;
  bool failed_ = false;
  KeeperHost::DoneCallback start_done_;
  absl::Status start_error_;  // what the failing start is to report
  std::string runtime_dir_;  // by the spec; where it cannot be read, the node's
  std::optional<AttemptSurvey> adopted_;  // between Adopt and TellStory
  // Beside the directory: what it was when it was adopted, and what the keeper
  // has said since.  Stands in for a directory that is gone.
  AttemptSurvey heard_;
  bool keeper_died_ = false;
  bool told_unreadable_ = false;
  keeper::UniqueFd connection_;
  keeper::UniqueFd pidfd_;
  pid_t keeper_pid_ = 0;  // while it is our child
  std::set<int> told_started_;
  std::set<int> told_exited_;
  std::optional<absl::Duration> kill_at_;  // a Stop was asked for
  absl::Duration wake_at_ = absl::InfiniteDuration();
  absl::Duration retry_delay_;
  // When a keeper that should have killed its ranks is killed itself.
  absl::Duration patience_ends_ = absl::InfiniteDuration();
};

}  // namespace cohort::worker
