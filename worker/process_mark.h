#pragma once

#include <sys/types.h>

#include <set>
#include <string>

#include "absl/strings/string_view.h"

namespace cohort::worker {

// Whether a process is a keeper's, by the environment that the keeper has and
// gives its processes, and all below that inherit (docs/design/0002-keeper.md,
// "Whose is this process?").
enum class MarkedAs {
  kNot,     // says nothing of it, or that it is another's
  kUnsure,  // has the mark, but is not to be believed: spared, and told
  kMarked,
};

// By its mark: the place of the keeper that `pid` is or is of.  Empty when we
// may not read it, or when another user runs it, who can give it any.
std::string PlaceOf(pid_t pid);

MarkedAs HowMarked(pid_t pid, absl::string_view place);

// The name (ProcessKey::ToString) of the process in whose cgroup a process is,
// by the text of its /proc/PID/cgroup: the innermost of keeper::CgroupName;
// empty when there is none.
std::string ProcessInCgroup(absl::string_view proc_cgroup);
// That of `pid`.  A process has it until it is reaped, also when it has lost
// its environment on its way out.
std::string ProcessOfCgroup(pid_t pid);

// From now on processes of these users are believed what they say, too: ranks
// run as they (--run-as).
void BelieveMarksOf(std::set<uid_t> users);

// Whether this process's user started it, or one of BelieveMarksOf: the real
// user, since programs may have another's rights.  False when it is gone.
bool IsOfOurUsers(pid_t pid);
// The same of this process's user alone.
bool IsOfThisUser(pid_t pid);

}  // namespace cohort::worker
