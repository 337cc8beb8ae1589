#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "worker/keeper/files.h"
#include "worker/keeper_dir.h"

// The few system calls by which a keeper is started and reached.
namespace cohort::worker {

// A listening socket `place`/control (made with its directory, replacing
// one that is left over).
absl::StatusOr<keeper::UniqueFd> ListenForKeeper(const std::string& place);

// A nonblocking connection to it.  NotFound when nobody listens.
absl::StatusOr<keeper::UniqueFd> ConnectToKeeper(const std::string& place);

struct KeeperProcess {
  pid_t pid = 0;
  keeper::UniqueFd pidfd;
};

// What a keeper is started with (docs/design/0002-keeper.md, "Start").
struct KeeperStart {
  std::string program;
  std::string dir;
  std::string place;
  std::string cgroup_parent;
  absl::Duration idle_timeout;
  absl::Duration begin_timeout;  // for its answer
};

// Starts a keeper in a session of its own, with the lock, the listener and the
// log.  Its environment has its mark, and its current directory is its own: by
// these others find whose keeper it is and where it keeps.  ResourceExhausted
// or Internal on failure.
absl::StatusOr<KeeperProcess> SpawnKeeper(const KeeperStart& start,
                                          const LockedKeeperDir& locked,
                                          const keeper::UniqueFd& listener);

// Runs `program` --check.  Errors, naming it, when it cannot be started, fails,
// or does not end within `timeout`, upon which it is killed.  Blocks, for twice
// `timeout` at most: one that has not died by then, as on a disk that hangs, is
// `left`, a child of this process, and no other is started while it lives.
absl::Status CheckKeeper(const std::string& program, absl::Duration timeout,
                         KeeperProcess& left);

}  // namespace cohort::worker
