#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace cohort::worker {

// This process's own cgroup v2 directory, when it may make groups in it: for
// KeeperSpec::cgroup_parent.
//
// May means: its user owns it, or systemd delegated it (Delegate=yes), or it is
// the root of a cgroup namespace (a container).  Root could also write to
// others, but those have another manager, which tidies up what it did not make.
// FailedPrecondition, with the reason, when there is none.
absl::StatusOr<std::string> DelegatedCgroup();

// This process's own cgroup v2 directory, whether or not it may; empty without.
std::string OwnCgroup();

// The pure parts.

// The path after "0::" in /proc/self/cgroup; empty without cgroup v2.
std::string CgroupPathIn(const std::string& proc_cgroup);
// Where cgroup v2 is mounted, by /proc/self/mountinfo; empty when it is not.
std::string CgroupMountIn(const std::string& mountinfo);

}  // namespace cohort::worker
