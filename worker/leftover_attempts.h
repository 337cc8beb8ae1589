#pragma once

#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "common/strong_id.h"

namespace cohort::worker {

// Where the keepers of a node keep, and where they and its attempts have their
// runtime directories.
struct KeeperPaths {
  std::string keepers_dir;  // in the state directory
  std::string runtime_dir;
};

// FailedPrecondition, naming it and what to do, when a keeper of this node runs
// in another directory, of which this state directory is a copy: its processes
// are not ours to end, and what it does cannot be known from here.  One whose
// directory is no more is none of those.  Changes nothing; blocks.
// REQUIRES: no other daemon has this node's id.
absl::Status CheckIsNoCopy(const KeeperPaths& paths);

// What the journal of a node knows.
struct KnownHere {
  std::set<std::string> keepers;  // that will be adopted
  std::set<AttemptId> attempts;   // whose runtime directories are in use
};

// Ends what earlier daemons of this node started and its state directory does
// not know of (a disk damaged its records, it was put back from an older copy,
// or the keeper was closed while a process of it could not be killed): keepers
// and their processes by 0002-keeper.md, "Whose is this process?".  The runtime
// directories of unknown keepers and attempts, which take memory, go too.
//
// Keepers of `known` stay when they hold the locks of this directory.
// `cgroup_parent`: where keepers made theirs; may be empty.
//
// What still lives after `timeout` is said and left behind: a process that
// hangs in a driver must not keep a daemon from starting (DV-1), and GPUs that
// it has memory on are fenced (DV-8).  REQUIRES: CheckIsNoCopy said OK.
// Blocks: for the start of a daemon.
void EndLeftoverAttempts(const KeeperPaths& paths, const KnownHere& known,
                         const std::string& cgroup_parent,
                         absl::Duration timeout);

}  // namespace cohort::worker
