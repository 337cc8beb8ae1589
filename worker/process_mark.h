#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace cohort::worker {

// A node's part of an attempt: several workers of one machine may each have
// one.
struct AttemptPart {
  std::string attempt;  // hex
  std::string place;    // its runtime directory, which no other part has
};

// Whether a process is of a part, by the environment that its keeper gave its
// rank and all below that inherit (docs/design/0002-keeper.md, "Whose is this
// process?").
enum class MarkedAs {
  kNot,     // says nothing of it, or that it is another's
  kUnsure,  // names the attempt, but is not to be believed: spared, and told
  kPart,
};

// What `environment` says of its process: both empty without COHORT_ATTEMPT_ID.
AttemptPart PartIn(const std::vector<std::string>& environment);

// That of `pid`, by its environment; both empty when we may not read it, or
// when another user runs it, who can give it any.
AttemptPart ReadPart(pid_t pid);

// The attempt (hex) in whose cgroup a process is, by the text of its
// /proc/PID/cgroup: the innermost of keeper::CgroupName, whatever node's part;
// empty when there is none.
std::string AttemptInCgroup(absl::string_view proc_cgroup);
// That of `pid`.  A process has it until it is reaped, also when it has lost
// its environment on its way out.
std::string AttemptOfCgroup(pid_t pid);

MarkedAs HowMarked(pid_t pid, const AttemptPart& part);

// Whether this process's user started it: the real user, since programs may
// have another's rights.  False when it is gone.
bool IsOfThisUser(pid_t pid);

}  // namespace cohort::worker
