#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "worker/keeper/files.h"
#include "worker/keeper/spec.h"

namespace cohort::keeper {

// The keeper's ends of what connects it to a process.
struct ChildEnds {
  UniqueFd stdout_pipe;  // nonblocking
  UniqueFd stderr_pipe;  // nonblocking
  // Ends when the program runs; before that, one message if it cannot.
  UniqueFd failure_pipe;  // nonblocking
};

// Why a process's program does not run.
struct ChildFailure {
  enum Step : int {
    kPipe,
    kFork,
    kCgroup,
    kInput,
    kUser,
    kDirectory,
    kProgram,
    kInterpreter,
  };
  Step step = kFork;
  int error = 0;  // errno

  // As a shell's: 127 for a program that is not there, 126 otherwise.
  int exit_code() const;
};

// One line for people: what failed, why, and what to look at.
std::string Describe(const ChildFailure& failure, const ProcessSpec& spec);

// Lets this process open as many files as it may (a process takes ten
// of ours);
// children get back what it had.
void RaiseOwnFileLimit();

// Forks and runs the program of `spec` in a session of its own that dies with
// this process.  Returns its pid; or nullopt with *failure.  What fails after
// the fork comes through failure_pipe.  `place`: the keeper's, for its marks.
// `cgroup`: -1 or the open directory of the one that it shall be in.
std::optional<pid_t> StartChild(const ProcessSpec& spec,
                                const std::string& place, int cgroup,
                                ChildEnds* ends, ChildFailure* failure);

// What came through `failure_pipe`: the failure, or nothing.  False in *closed
// while neither message nor end is there yet.
std::optional<ChildFailure> ReadFailure(int failure_pipe, bool* closed);

}  // namespace cohort::keeper
