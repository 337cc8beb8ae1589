#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "worker/process_identity.h"
#include "worker/process_mark.h"

namespace cohort::worker {

// The children of this process, where orphans come to it.
struct Children {
  // Keepers and the like, which others end and reap.
  std::set<pid_t> own;
  // Those it had before its first keeper, by pid and start time, as a sidecar
  // that was started in the background before the program.
  std::set<std::pair<pid_t, uint64_t>> before = {};

  // Whether all others come from keepers: no child from before may have had
  // children, and to the first process of a container come orphans from
  // everywhere.
  bool OthersAreOrphans() const { return before.empty() && getpid() != 1; }
};

// Children that this process starts besides keepers and waits for itself: they
// do not look like orphans to anybody.  Thread-safe.
class OwnChildren {
 public:
  // The pid that `start` answers is one, before anybody can see it.
  static absl::StatusOr<pid_t> Start(
      absl::FunctionRef<absl::StatusOr<pid_t>()> start);
  // It was waited for, or is left to ReapOrphans.
  static void Forget(pid_t pid);
  static bool Contains(pid_t pid);
};

// Those that this process has now and does not wait for.
std::set<std::pair<pid_t, uint64_t>> ReadChildren();

// Which processes are a keeper's, once it is dead (0002-keeper.md, "Whose is
// this process?").  What descends from one that matches, matches.
struct LeftoverQuery {
  std::string place;  // matches its mark
  // Leaders as they were started; matches members of their sessions, which
  // covers a descendant that cleared its environment.
  std::vector<ProcessIdentity> leaders = {};
  // Directory; empty when the keeper had none.  With what is below it.
  std::string cgroup = "";
  // Where orphans come to this process: matches these.
  std::optional<Children> children = std::nullopt;
};

// Pids of living processes that match, ascending.
std::vector<int64_t> FindLeftovers(const LeftoverQuery& query);

// Kills with SIGKILL, again and again until no process matches, and returns how
// many it killed.  DeadlineExceeded, naming the pids, when some still live
// after `timeout` (a process in uninterruptible sleep cannot be killed).  What
// only may be the keeper's is spared, and said in the log.  Orphans that came
// to this process are reaped.  Blocks: for a thread at the edge.
absl::StatusOr<int> KillLeftovers(const LeftoverQuery& query,
                                  absl::Duration timeout);

// Removes the cgroup of a keeper that has no process left, and those below
// it; one that is not empty stays.
void RemoveCgroup(const std::string& cgroup);

// Reaps the dead children of this process that are not its own.
void ReapOrphans(const Children& children);

}  // namespace cohort::worker
