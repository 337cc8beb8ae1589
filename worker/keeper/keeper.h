#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "worker/keeper/cgroup.h"
#include "worker/keeper/event_feed.h"
#include "worker/keeper/files.h"
#include "worker/keeper/poller.h"
#include "worker/keeper/proc.h"
#include "worker/keeper/rank_process.h"
#include "worker/keeper/reports.h"
#include "worker/keeper/spec.h"

namespace cohort::keeper {

// What the process was born with.
struct KeeperInputs {
  std::string attempt_dir;  // absolute
  KeeperSpec spec;
  UniqueFd lock;      // the attempt's flock, kept until the end
  UniqueFd listener;  // the control socket
};

// The whole program: starts the ranks of an attempt, keeps their output and
// their records, ends them when told to, and ends when nothing of them is left.
//
// Makes the process a child subreaper and blocks its signals.  One a process,
// one thread.
//
// KP-1: an exit record tells what waitid told; `done` is written after all of
//       them and after the last process of the attempt.  Where the disk takes
//       no record any more (it is read-only, the directory was removed) `done`
//       is told alone, and the keeper stays until somebody has heard it.
// KP-2: no rank starts unless its records have their disk space.
// KP-3: when a rank has ended, its descendants are ended too.
class Keeper {
 public:
  explicit Keeper(KeeperInputs inputs);

  // All that can fail before a rank runs.  Error text; nothing was started.
  std::string Prepare();

  // Runs until everything has ended and is written.
  void Run();

 private:
  std::string OpenDirectories();
  void MakeCgroup(KeeperReport* report);
  void Dispatch(const Ready& ready);
  void OnSignals();
  void Reap();
  void OnStop(const StopCommand& command);
  // TL-1: at most once, and only for ranks that would have run on.
  void OnTimeLimit();
  // SIGTERM to this process.
  void OnTerminated();
  // Who ends everything, as a machine that shuts down, tells ranks and keeper,
  // in any order: waits for ours when a rank has ended of its own.
  void AwaitOwnSigterm();
  bool stopping() const { return kill_at_ms_ || killing_; }
  void KillAll();
  // Kills what ended ranks (or, after KillAll, any) have left behind, and
  // settles ranks of which nothing is left.
  void Sweep();
  bool HasChildren() const;
  std::set<int> LiveRanks() const;
  // The rank whose tree a child of ours belongs to, -1 for none.
  int OwnerOf(const ProcessStat& child) const;
  RankProcess* LiveRank(pid_t leader) const;
  void Finish();
  bool AllSettled() const;
  int NextTimeout_ms() const;

  KeeperInputs inputs_;
  // Kept open: ranks outlive a daemon, and the name of its state directory.
  const Directory attempt_dir_;
  Directory log_dir_;
  Poller poller_;
  EventFeed feed_;
  UniqueFd signals_;
  Cgroup group_;
  ReservedFile done_file_;
  std::vector<std::unique_ptr<RankProcess>> ranks_;
  std::optional<int64_t> limit_at_ms_;  // monotonic; until it is reached
  std::optional<int64_t> kill_at_ms_;   // monotonic; a Stop's grace ends
  bool killing_ = false;
  bool sweeping_ = false;    // something ended and may have left something
  bool done_ = false;        // the records are written
  bool told_ = false;        // done, by the socket
  bool give_up_ = false;     // killed while the disk refuses the last records
  int64_t leave_at_ms_ = 0;  // after done: for connections that are slow
};

}  // namespace cohort::keeper
