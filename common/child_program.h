#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cohort {

// A program that a daemon starts: it gets nothing of the daemon's but what is
// named here.
struct ChildProgram {
  // For `files`: /dev/null.
  static constexpr int kNothing = -1;

  std::vector<std::string> command;      // the path, then the arguments
  std::vector<std::string> environment;  // all of it, NAME=VALUE
  // Which of our descriptors its 0, 1, 2, ... are.  It has no others: a
  // listener that it or what it leaves behind had would keep the port.
  std::vector<int> files = {kNothing, kNothing, kNothing};
  std::string directory;        // empty: ours
  bool in_new_session = false;  // else in a process group of its own
};

// Starts it, with signals as in a new process.  Errors are posix_spawn's:
// NotFound when there is no such program.  Thread-safe.
// REQUIRES: each of ours in `files` is at least files.size().
absl::StatusOr<pid_t> StartChild(const ChildProgram& child);

// `words` as exec takes them, which writes to none of them.  They outlive it.
std::vector<char*> ArgumentVector(const std::vector<std::string>& words);

}  // namespace cohort
