#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/keeper/cgroup.h"
#include "worker/keeper/event_feed.h"
#include "worker/keeper/files.h"
#include "worker/keeper/poller.h"
#include "worker/keeper/proc.h"
#include "worker/keeper/process.h"
#include "worker/keeper/reports.h"
#include "worker/keeper/spec.h"

namespace cohort::keeper {

// What the program was started with.
struct KeeperInputs {
  std::string dir;            // absolute
  std::string place;          // its runtime directory
  std::string cgroup_parent;  // where it may make its group; empty: do without
  // How long it stays without a daemon when nothing runs.
  int64_t idle_timeout_ms = 0;
  UniqueFd lock;      // the directory's flock, kept until the end
  UniqueFd listener;  // the control socket
};

// The whole program: begins processes when told to, keeps their output and
// their records, and ends them when told to.
//
// Makes the process a child subreaper and blocks its signals.  One a process,
// one thread.
//
// KP-1: an exit record tells what waitid told; `ended` comes after it and after
//       the last process of the tree.  Where the disk takes no record any more
//       (it is read-only, the directory was removed) both are told by the
//       socket alone, and the keeper stays until a daemon forgets the process
//       or closes the keeper.
// KP-2: no process starts unless its records have their disk space.
// KP-3: when a process has ended, its descendants are ended too.
// KP-4: a process is begun at most once in the life of the directory.
class Keeper {
 public:
  explicit Keeper(KeeperInputs inputs);

  // All that can fail before it takes commands.  Error text.
  std::string Prepare();

  // Runs until it is closed, or told to end by SIGTERM, or alone for the idle
  // timeout; and nothing runs.
  void Run();

 private:
  using Processes = std::map<uint32_t, std::unique_ptr<Process>>;

  void MakeCgroup();
  void Dispatch(const Ready& ready);
  void OnCommand(const Command& command, uint32_t connection);
  // Begins all that it has not begun, or none.  Error text.
  std::string Begin(const std::vector<ProcessKey>& keys, Processes* begun);
  // A spec as its file has it; nullopt with *error.
  std::optional<ProcessSpec> ReadSpec(const ProcessKey& key,
                                      std::string* error) const;
  void Forget(const std::vector<ProcessKey>& keys);
  void OnSignals();
  void Reap();
  // SIGTERM to this process.
  void OnTerminated();
  // Who ends everything, as a machine that shuts down, tells processes and
  // keeper, in any order: waits for ours when a process has ended of its own.
  void AwaitOwnSigterm();
  void TakeDeadlines();
  // Kills what ended and killed processes have left behind, and settles those
  // of which nothing is left.
  void Sweep();
  bool HasChildren() const;
  size_t LiveCount() const;
  Process* Find(const ProcessKey& key) const;
  // The live process whose leader this is.
  Process* LeaderOf(pid_t pid) const;
  // The process whose tree a child of ours belongs to; null for none.
  // `untold`: it has no environment now, as amid an exec.
  Process* OwnerOf(const ProcessStat& child, bool& untold) const;
  bool AllSettled() const;
  bool AllRecorded() const;
  bool MayLeave(int64_t now_ms);
  int NextTimeout_ms() const;

  KeeperInputs inputs_;
  // Kept open: processes outlive a daemon, and the name of its state directory.
  const Directory dir_;
  Poller poller_;
  EventFeed feed_;
  UniqueFd signals_;
  Cgroup group_;
  Processes processes_;  // that are not forgotten, by their index in the loop
  uint32_t next_index_ = 0;
  bool sweeping_ = false;  // something ended and may have left something
  // Children that had no environment in a sweep, and in how many: whose they
  // are may be told in the next one.
  std::map<pid_t, int> untold_;
  bool leaving_ = false;        // it takes no more processes
  int64_t quiet_since_ms_ = 0;  // since when nothing runs
  int64_t alone_since_ms_ = 0;  // and no daemon is connected
};

}  // namespace cohort::keeper
