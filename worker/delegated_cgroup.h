#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cohort::worker {

// The group below a delegated one that daemons go into, so that the controllers
// of that one can be had below it: the kernel lets no group have both processes
// and controllers below.
inline constexpr char kDaemonGroup[] = "cohort-daemon";

// This process's own cgroup v2 directory, or, in a kDaemonGroup, the one above
// it: what limits it and all its ranks.  Empty without cgroup v2.
std::string OwnCgroup();

// OwnCgroup, when this process may make groups in it.
//
// May means: its user owns it, or systemd delegated it (Delegate=yes), or it is
// the root of a cgroup namespace (a container).  Root could also write to
// others, but those have another manager, which tidies up what it did not make.
// FailedPrecondition, with the reason, when there is none.
absl::StatusOr<std::string> DelegatedCgroup();

// Where keepers make their cgroups, and whether these hold what is in them.
struct CgroupParent {
  std::string dir;         // empty: nowhere
  std::string unenforced;  // why they hold nothing back; empty: they do
};

// The delegated cgroup with its controllers for memory, CPU and number of
// processes let below.  Moves this process, and those beside it, into
// kDaemonGroup where that needs it.
CgroupParent TakeCgroupParent();

// The pure parts.

// The path after "0::" in /proc/self/cgroup; empty without cgroup v2.
std::string CgroupPathIn(const std::string& proc_cgroup);
// Of kCgroupControllers those that are not in `controllers`, the text of
// cgroup.controllers: "memory, cpu"; empty when it has all.
std::string ControllersMissing(const std::string& controllers);
// Where cgroup v2 is mounted, by /proc/self/mountinfo; empty when it is not.
std::string CgroupMountIn(const std::string& mountinfo);

}  // namespace cohort::worker
