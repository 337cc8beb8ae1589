#pragma once

#include "absl/status/status.h"

#include "worker/node_directories.h"

// The attempts of another node, in a state directory that was copied from that
// node's to be one of its own.  Its journal knows them, but they are not ours
// to adopt, to report or to end.  Only what lies in this directory is removed,
// not what it leads to: FailedPrecondition, naming it, where that is the
// journal. Block: for the start of a daemon that has the directory's lock.
namespace cohort::worker {

// Where there is no node id, before one is made: every attempt is another
// node's.  FailedPrecondition, naming it and what to do, when a keeper lives in
// this very directory, which then is no copy.
absl::Status RemoveAttemptsWithoutNode(const NodeDirectories& directories);

// Where there is one: those whose keepers were given the runtime directory of
// another node, as older daemons left them that made a node id beside them.
absl::Status RemoveForeignAttempts(const NodeDirectories& directories);

}  // namespace cohort::worker
