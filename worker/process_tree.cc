#include "worker/process_tree.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <optional>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "common/real_clock.h"
#include "worker/keeper/files.h"
#include "worker/keeper/proc.h"

namespace cohort::worker {
namespace {

using keeper::ProcessStat;

constexpr size_t kProcsBytesMax = 8 << 20;
// Killed processes end in microseconds; looking more often only costs.
constexpr int kLookEvery_ms = 5;

// `process` is in the session that `rank` led, and it is that session: not one
// of a later process that got the rank's pid.
bool IsInSessionOf(const ProcessStat& process, const ProcessIdentity& rank,
                   const std::string& boot_id,
                   const std::map<pid_t, ProcessStat>& processes) {
  if (process.session != rank.pid || rank.boot_id != boot_id ||
      process.start_time < rank.start_time) {
    return false;
  }
  const auto leader = processes.find(static_cast<pid_t>(rank.pid));
  return leader == processes.end() ||
         leader->second.start_time == rank.start_time;
}

// Members of the group and of the groups below it, as the keeper makes them.
void AddMembers(const std::string& cgroup, std::set<pid_t>* members) {
  int error = 0;
  const std::optional<std::string> procs =
      keeper::ReadWhole(cgroup + "/cgroup.procs", kProcsBytesMax, &error);
  for (const absl::string_view line :
       absl::StrSplit(procs.value_or(""), '\n', absl::SkipEmpty())) {
    int pid = 0;
    if (absl::SimpleAtoi(line, &pid)) members->insert(pid);
  }
}

std::set<pid_t> MembersOf(const std::string& cgroup) {
  std::set<pid_t> members;
  if (cgroup.empty()) return members;
  AddMembers(cgroup, &members);
  int error = 0;
  for (const std::string& name : keeper::ListDirectory(cgroup, &error)) {
    if (absl::StartsWith(name, "rank-")) {
      AddMembers(absl::StrCat(cgroup, "/", name), &members);
    }
  }
  return members;
}

// Orphans of a dead keeper and all below them.
std::set<pid_t> OrphansAndBelow(
    const std::optional<std::set<pid_t>>& own_children,
    const std::map<pid_t, ProcessStat>& processes) {
  std::set<pid_t> orphans;
  if (!own_children) return orphans;
  for (const auto& [pid, process] : processes) {
    if (process.parent != getpid() || own_children->count(pid) != 0) continue;
    orphans.insert(pid);
    const std::vector<pid_t> below = keeper::DescendantsOf(pid, processes);
    orphans.insert(below.begin(), below.end());
  }
  return orphans;
}

bool IsMarked(const std::vector<std::string>& environment,
              const LeftoverQuery& query) {
  if (!keeper::Carries(environment, keeper::kAttemptVariable, query.attempt)) {
    return false;
  }
  const std::string name = absl::StrCat(keeper::kPlaceVariable, "=");
  return std::none_of(environment.begin(), environment.end(),
                      [&](const std::string& variable) {
                        return absl::StartsWith(variable, name) &&
                               variable != name + query.place;
                      });
}

std::vector<ProcessStat> Find(const LeftoverQuery& query) {
  const std::map<pid_t, ProcessStat> processes = keeper::ReadProcesses();
  std::set<pid_t> members = MembersOf(query.cgroup);
  members.merge(OrphansAndBelow(query.own_children, processes));
  const std::string boot_id = keeper::ReadBootId();
  std::vector<ProcessStat> found;
  for (const auto& [pid, process] : processes) {
    if (process.dead() || pid == getpid()) continue;
    bool matches = members.count(pid) != 0;
    for (const ProcessIdentity& rank : query.ranks) {
      matches = matches || IsInSessionOf(process, rank, boot_id, processes);
    }
    if (matches || IsMarked(keeper::ReadEnvironment(pid), query)) {
      found.push_back(process);
    }
  }
  return found;
}

}  // namespace

std::vector<int64_t> FindLeftovers(const LeftoverQuery& query) {
  std::vector<int64_t> pids;
  for (const ProcessStat& process : Find(query)) pids.push_back(process.pid);
  return pids;
}

absl::StatusOr<int> KillLeftovers(const LeftoverQuery& query,
                                  absl::Duration timeout) {
  const MachineClock clock;
  const absl::Duration deadline = clock.Monotonic() + timeout;
  std::set<pid_t> killed;
  while (true) {
    const std::vector<ProcessStat> left = Find(query);
    if (left.empty()) {
      if (query.own_children) ReapOrphans(*query.own_children);
      return static_cast<int>(killed.size());
    }
    for (const ProcessStat& process : left) {
      keeper::SignalExactly(process, SIGKILL);
      killed.insert(process.pid);
    }
    if (clock.Monotonic() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          "processes of attempt ", query.attempt,
          " do not die: ", absl::StrJoin(FindLeftovers(query), ", ")));
    }
    poll(nullptr, 0, kLookEvery_ms);
  }
}

void RemoveCgroup(const std::string& cgroup) {
  if (cgroup.empty()) return;
  int error = 0;
  // What is no directory there is the kernel's, and goes with it.
  for (const std::string& name : keeper::ListDirectory(cgroup, &error)) {
    rmdir(absl::StrCat(cgroup, "/", name).c_str());
  }
  rmdir(cgroup.c_str());
}

void ReapOrphans(const std::set<pid_t>& own_children) {
  for (const auto& [pid, process] : keeper::ReadProcesses()) {
    if (process.parent != getpid() || !process.dead()) continue;
    if (own_children.count(pid) != 0) continue;
    waitpid(pid, nullptr, WNOHANG);
  }
}

}  // namespace cohort::worker
