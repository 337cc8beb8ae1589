#pragma once

#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "worker/node_directories.h"

namespace cohort::worker {

// What to look for.
struct StrayQuery {
  const NodeDirectories& directories;
  // The journal's attempts (hex), and those of them whose ranks run as far as
  // it knows: these stay when their keepers hold the locks of this directory.
  std::set<std::string> known;
  std::set<std::string> live;
  std::string cgroup_parent;  // where keepers made theirs; may be empty
};

// FailedPrecondition, naming it and what to do, when a keeper of this node runs
// over another state directory, of which this one is a copy: its ranks are not
// ours to end, and what it does cannot be known from here.  One whose directory
// is no more is none of those.  One that has an attempt of ours and does not
// tell its node is left alone, and said in the log.  Changes nothing; blocks.
// REQUIRES: no other daemon has this node's id.
absl::Status CheckNoKeepersElsewhere(const NodeDirectories& directories);

// Ends what earlier daemons of this node started and its state directory does
// not know of (it was put back from an older copy, a disk damaged its records,
// or the attempt was forgotten while a process of it could not be killed), or
// whose spec it has not any more: keepers and ranks by 0002-keeper.md, "Whose
// is this process?".  Their runtime directories, which take memory, go too.
//
// What still lives after `timeout` is said and left behind: a process that
// hangs in a driver must not keep a daemon from starting (DV-1), and GPUs that
// it has memory on are fenced (DV-8).  REQUIRES: no other daemon has this
// node's id, and CheckNoKeepersElsewhere found none.  Blocks: for the start of
// a daemon.
void EndStrayAttempts(const StrayQuery& query, absl::Duration timeout);

}  // namespace cohort::worker
