#pragma once

#include <string>
#include <vector>

#include "worker/keeper/proc.h"

namespace cohort::worker {

// A cohort-keeper that runs on this machine, of whatever daemon.  Immutable
// value; its functions ask the machine.
class LivingKeeper {
 public:
  // `told` as its command line has it.
  LivingKeeper(keeper::ProcessStat process, const std::string& told);

  const keeper::ProcessStat& process() const { return process_; }
  // The attempt's directory as the keeper was told it, when it began; by
  // CleanPath.
  const std::string& told() const { return told_; }
  // The attempt (hex): the name of its directory.
  std::string attempt() const;
  // What the directory is called now.
  std::string Place() const;
  // Whether its directory is this one: not a copy, were it of hard links, by
  // which lock and records are one file.
  bool KeepsIn(const std::string& directory) const;
  // Whether its directory is no more: nobody can go on with that one.
  bool IsRemoved() const;
  // The attempt's runtime directory, which tells the node: by the spec in its
  // directory; by the marks of its ranks where that cannot be read.  Empty when
  // neither tells, or when another user runs it, who could say anything.
  std::string RuntimeDirectory() const;

 private:
  // A path that leads to its directory.
  std::string Way() const;

  keeper::ProcessStat process_;
  std::string told_;
};

std::vector<LivingKeeper> FindLivingKeepers();

// The directory that `pid` was told when it is a keeper, by its command line:
// PROGRAM DIRECTORY; else empty.
std::string DirectoryOfKeeper(pid_t pid);

}  // namespace cohort::worker
