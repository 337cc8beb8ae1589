#pragma once

#include <cstdint>
#include <string>

#include "worker/keeper/files.h"

namespace cohort::keeper {

// The controllers by which a process is held within what it asked for.
inline constexpr const char* kCgroupControllers[] = {"memory", "cpu", "pids"};

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

  // Lets groups below have those of the controllers that are to be had here.
  void EnableControllersBelow();

  // What a group's processes may have together, where the group above lets it
  // have the controllers.  Beyond its memory, all of them are ended at once:
  // what is left of a rank that lost a thread of work would only hang.  There
  // is no swap: a rank that pages is slower than all its peers.
  struct Limits {
    int64_t memory_bytes = 0;  // 0: no bound
    int cpu_weight = 0;        // 1 to 10,000; 0: the kernel's default, 100
    // Processes and threads: far above what a rank needs, far below what a
    // machine has, so that a fork bomb ends in its own rank.
    int64_t tasks = 32'768;
  };
  void Limit(const Limits& limits);

  // The directory, for a child to be made in; none without a group.
  UniqueFd Open() const;
  // SIGKILL to every member, atomically.
  void Kill() const;
  // How many members the OOM killer has killed, for want of memory here or on
  // the whole machine.
  int64_t OomKills() const { return MemoryEvents("oom_kill"); }
  // How often they wanted more than Limits gives them and there was none.
  int64_t OutOfOwnMemory() const { return MemoryEvents("oom"); }
  // Removes the directory when it is empty of processes.
  void Remove();

  const std::string& path() const { return path_; }

 private:
  int64_t MemoryEvents(const std::string& name) const;

  std::string path_;
};

}  // namespace cohort::keeper
