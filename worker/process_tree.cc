#include "worker/process_tree.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <optional>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "common/log.h"
#include "common/mutex.h"
#include "common/real_clock.h"
#include "worker/keeper/files.h"
#include "worker/keeper/proc.h"

namespace cohort::worker {
namespace {

using keeper::ProcessStat;

constexpr size_t kProcsBytesMax = 8 << 20;
// Killed processes end in microseconds; looking more often only costs.
constexpr int kLookEvery_ms = 5;
constexpr size_t kSparedToldMax = 20;

std::vector<std::string> GroupsBelow(const std::string& cgroup) {
  std::vector<std::string> groups;
  int error = 0;
  for (const std::string& name : keeper::ListDirectory(cgroup, &error)) {
    const std::string path = absl::StrCat(cgroup, "/", name);
    struct stat status;
    if (lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) {
      groups.push_back(path);
    }
  }
  return groups;
}

// `process` is in the session that `leader` led, and it is that session: not
// one of a later process that got the leader's pid.
bool IsInSessionOf(const ProcessStat& process, const ProcessIdentity& leader,
                   const std::string& boot_id,
                   const std::map<pid_t, ProcessStat>& processes) {
  if (process.session != leader.pid || leader.boot_id != boot_id ||
      process.start_time < leader.start_time) {
    return false;
  }
  const auto now = processes.find(static_cast<pid_t>(leader.pid));
  return now == processes.end() || now->second.start_time == leader.start_time;
}

// Members of the group and of all below it: a process may make
// groups of its own.
void AddMembers(const std::string& cgroup, std::set<pid_t>* members) {
  int error = 0;
  const std::optional<std::string> procs =
      keeper::ReadWhole(cgroup + "/cgroup.procs", kProcsBytesMax, &error);
  for (const absl::string_view line :
       absl::StrSplit(procs.value_or(""), '\n', absl::SkipEmpty())) {
    int pid = 0;
    if (absl::SimpleAtoi(line, &pid)) members->insert(pid);
  }
  for (const std::string& below : GroupsBelow(cgroup)) {
    AddMembers(below, members);
  }
}

struct StartedChildren {
  Mutex mutex;
  std::set<pid_t> pids ABSL_GUARDED_BY(mutex);
};
StartedChildren& Started() {
  static auto* const started = new StartedChildren;
  return *started;
}

// Processes that nobody but a keeper can have left to us; in `unsure` those
// that anybody may have.
std::set<pid_t> OrphansOf(const std::optional<Children>& children,
                          const std::map<pid_t, ProcessStat>& processes,
                          std::set<pid_t>* unsure) {
  std::set<pid_t> orphans;
  if (!children) return orphans;
  const bool certain = children->OthersAreOrphans();
  for (const auto& [pid, process] : processes) {
    if (process.parent != getpid() || children->own.contains(pid) ||
        OwnChildren::Contains(pid) ||
        children->before.contains({pid, process.start_time})) {
      continue;
    }
    (certain ? &orphans : unsure)->insert(pid);
  }
  return orphans;
}

struct Findings {
  std::set<pid_t> certain;
  std::set<pid_t> unsure;  // may be of it
};

// Alive or not.
Findings Look(const LeftoverQuery& query,
              const std::map<pid_t, ProcessStat>& processes) {
  Findings found;
  if (!query.cgroup.empty()) AddMembers(query.cgroup, &found.certain);
  found.certain.merge(OrphansOf(query.children, processes, &found.unsure));
  const std::string boot_id = keeper::ReadBootId();
  for (const auto& [pid, process] : processes) {
    for (const ProcessIdentity& leader : query.leaders) {
      if (IsInSessionOf(process, leader, boot_id, processes)) {
        found.certain.insert(pid);
      }
    }
    const MarkedAs marked = HowMarked(pid, query.place);
    if (marked == MarkedAs::kMarked) found.certain.insert(pid);
    if (marked == MarkedAs::kUnsure) found.unsure.insert(pid);
  }
  for (const pid_t pid : std::set<pid_t>(found.certain)) {
    std::vector<pid_t> tree = keeper::DescendantsOf(pid, processes);
    tree.push_back(pid);
    const bool has_us = std::count(tree.begin(), tree.end(), getpid()) != 0;
    // Neither this process nor what started it is a part of what it runs.
    if (has_us) found.certain.erase(pid);
    if (!has_us) found.certain.insert(tree.begin(), tree.end());
  }
  return found;
}

std::vector<ProcessStat> Find(const LeftoverQuery& query) {
  const std::map<pid_t, ProcessStat> processes = keeper::ReadProcesses();
  std::vector<ProcessStat> left;
  for (const pid_t pid : Look(query, processes).certain) {
    const auto process = processes.find(pid);
    if (process != processes.end() && !process->second.dead()) {
      left.push_back(process->second);
    }
  }
  return left;
}

void TellSpared(const LeftoverQuery& query) {
  const std::map<pid_t, ProcessStat> processes = keeper::ReadProcesses();
  std::set<pid_t> spared;
  for (const pid_t pid : Look(query, processes).unsure) {
    const auto process = processes.find(pid);
    if (process == processes.end() || process->second.dead()) continue;
    if (spared.size() < kSparedToldMax) spared.insert(pid);
  }
  if (spared.empty()) return;
  COHORT_LOG(kWarning, "leftovers_spared", {"keeper", query.place},
             {"pids", absl::StrJoin(spared, ",")},
             {"why",
              "they may be the keeper's or somebody else's: an orphan that "
              "carries no mark, or a mark that anybody may have set"});
}

}  // namespace

absl::StatusOr<pid_t> OwnChildren::Start(
    absl::FunctionRef<absl::StatusOr<pid_t>()> start) {
  StartedChildren& children = Started();
  // Who has seen it among all processes asks only after this.
  MutexLock lock(children.mutex);
  absl::StatusOr<pid_t> pid = start();
  if (pid.ok()) children.pids.insert(*pid);
  return pid;
}

void OwnChildren::Forget(pid_t pid) {
  StartedChildren& children = Started();
  MutexLock lock(children.mutex);
  children.pids.erase(pid);
}

bool OwnChildren::Contains(pid_t pid) {
  StartedChildren& children = Started();
  MutexLock lock(children.mutex);
  return children.pids.contains(pid);
}

std::set<std::pair<pid_t, uint64_t>> ReadChildren() {
  std::set<std::pair<pid_t, uint64_t>> children;
  for (const auto& [pid, process] : keeper::ReadProcesses()) {
    if (process.parent == getpid() && !process.dead()) {
      children.insert({pid, process.start_time});
    }
  }
  return children;
}

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
      if (query.children) ReapOrphans(*query.children);
      TellSpared(query);
      return static_cast<int>(killed.size());
    }
    for (const ProcessStat& process : left) {
      keeper::SignalExactly(process, SIGKILL);
      killed.insert(process.pid);
    }
    if (clock.Monotonic() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          "processes of the keeper at ", query.place,
          " do not die: ", absl::StrJoin(FindLeftovers(query), ", ")));
    }
    poll(nullptr, 0, kLookEvery_ms);
  }
}

void RemoveCgroup(const std::string& cgroup) {
  if (cgroup.empty()) return;
  for (const std::string& below : GroupsBelow(cgroup)) RemoveCgroup(below);
  rmdir(cgroup.c_str());
}

void ReapOrphans(const Children& children) {
  // Mostly there is none, and to look at all processes takes milliseconds.
  siginfo_t dead{};
  if (waitid(P_ALL, 0, &dead, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      dead.si_pid == 0) {
    return;
  }
  for (const auto& [pid, process] : keeper::ReadProcesses()) {
    if (process.parent != getpid() || !process.dead()) continue;
    if (children.own.contains(pid) || OwnChildren::Contains(pid)) continue;
    waitpid(pid, nullptr, WNOHANG);
  }
}

}  // namespace cohort::worker
