#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "worker/attempt_host.h"
#include "worker/node_directories.h"

namespace cohort::worker {

// FailedPrecondition, naming it and what to do, when a keeper of this node runs
// in another directory, of which this state directory is a copy: its ranks are
// not ours to end, and what it does cannot be known from here.  One whose
// directory is no more is none of those.  Changes nothing; blocks.
// REQUIRES: no other daemon has this node's id.
absl::Status CheckIsNoCopy(const NodeDirectories& directories);

// Ends what earlier daemons of this node started and its state directory does
// not know of (a disk damaged its records, it was put back from an older copy,
// or the attempt was forgotten while a process of it could not be killed), or
// whose spec it has not any more: keepers and ranks by 0002-keeper.md, "Whose
// is this process?".  Their runtime directories, which take memory, go too.
//
// Attempts of `journal` that run as far as it knows stay when their keepers
// hold the locks of this directory.  `cgroup_parent`: where keepers made
// theirs; may be empty.
//
// What still lives after `timeout` is said and left behind: a process that
// hangs in a driver must not keep a daemon from starting (DV-1), and GPUs that
// it has memory on are fenced (DV-8).  REQUIRES: CheckIsNoCopy said OK.
// Blocks: for the start of a daemon.
void EndStrayAttempts(const NodeDirectories& directories,
                      const std::vector<JournalEntry>& journal,
                      const std::string& cgroup_parent, absl::Duration timeout);

}  // namespace cohort::worker
