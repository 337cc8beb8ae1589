#pragma once

#include <cstdint>
#include <string>

#include "worker/keeper/files.h"

namespace cohort::keeper {

// One cgroup v2 directory of ours; std only.
//
// Everything is best effort but Create: a keeper does its work without cgroups,
// with them it kills in one write and knows of the OOM killer.
// Thread-compatible.
class Cgroup {
 public:
  Cgroup() = default;  // none: every call is a no-op

  // Makes `parent`/`name` (or takes it over).  Error text when `parent` is not
  // a cgroup v2 directory in which we may.
  static std::string Create(const std::string& parent, const std::string& name,
                            Cgroup* created);

  // Lets groups below have the memory controller, where it is to be had.
  void EnableMemoryBelow();

  // The directory, for a child to be made in; none without a group.
  UniqueFd Open() const;
  // SIGKILL to every member, atomically.
  void Kill() const;
  // How many members the OOM killer has killed.
  int64_t OomKills() const;
  // Removes the directory when it is empty of processes.
  void Remove();

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace cohort::keeper
