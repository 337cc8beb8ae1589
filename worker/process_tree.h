#pragma once

#include <sys/types.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "worker/process_identity.h"

namespace cohort::worker {

// Which processes are an attempt's, once its keeper is dead.
struct LeftoverQuery {
  std::string attempt;  // matches COHORT_ATTEMPT_ID in /proc/PID/environ
  // Its runtime directory on this node: spares what COHORT_KEEPER_PLACE says is
  // another's part of it.
  std::string place = "";
  // Ranks as they were started; matches members of their sessions, which covers
  // a descendant that cleared its environment.
  std::vector<ProcessIdentity> ranks;
  std::string cgroup;  // directory; empty when the attempt had none
  // Where orphans come to this process: matches its other children and what
  // descends from them.
  std::optional<std::set<pid_t>> own_children = std::nullopt;
};

// Pids of living processes that match, ascending.
std::vector<int64_t> FindLeftovers(const LeftoverQuery& query);

// Kills with SIGKILL, again and again until no process matches, and returns how
// many it killed.  DeadlineExceeded, naming the pids, when some still live
// after `timeout` (a process in uninterruptible sleep cannot be killed).
// Orphans that came to this process are reaped.  Blocks: for a thread at the
// edge.
absl::StatusOr<int> KillLeftovers(const LeftoverQuery& query,
                                  absl::Duration timeout);

// Removes the cgroup of an attempt that has no process left, and those of its
// ranks; one that is not empty stays.
void RemoveCgroup(const std::string& cgroup);

// Reaps the dead children of this process that are not `own_children`.
void ReapOrphans(const std::set<pid_t>& own_children);

}  // namespace cohort::worker
