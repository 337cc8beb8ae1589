#include "worker/leftover_attempts.h"

#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "common/file.h"
#include "common/log.h"
#include "common/real_clock.h"
#include "worker/keeper/files.h"
#include "worker/keeper/proc.h"
#include "worker/keeper/spec.h"
#include "worker/keeper_dir.h"
#include "worker/process_mark.h"
#include "worker/process_tree.h"

namespace cohort::worker {
namespace {

using keeper::ProcessStat;

// The processes of this node's keepers, by the marks that they carry.
using Marked = std::map<std::string, std::vector<ProcessStat>>;

std::string DirectoryOf(const KeeperPaths& paths, const std::string& keeper) {
  return absl::StrCat(paths.keepers_dir, "/", keeper);
}

Marked FindMarked(const KeeperPaths& paths) {
  Marked marked;
  for (const auto& [pid, process] : keeper::ReadProcesses()) {
    if (process.dead() || pid == getpid()) continue;
    const std::string keeper = KeeperAt(paths.runtime_dir, PlaceOf(pid));
    if (!keeper.empty()) marked[keeper].push_back(process);
  }
  return marked;
}

bool IsKeeper(pid_t pid) {
  if (!IsOfThisUser(pid)) return false;  // a rank may take any name
  const auto name = ReadFile(absl::StrCat("/proc/", pid, "/comm"));
  return name.ok() && *name == "cohort-keeper\n";
}

// The directory that a keeper keeps in, where that is not `ours`; empty when it
// is, and when it is no more: nobody can go on with that one.  Not by its name,
// which may have changed since, nor by its lock, which a copy of hard links
// shares.
std::string KeepsElsewhere(pid_t keeper, const std::string& ours) {
  const std::string current = absl::StrCat("/proc/", keeper, "/cwd");
  struct stat kept;
  struct stat own;
  if (stat(current.c_str(), &kept) != 0 || kept.st_nlink == 0) return "";
  if (stat(ours.c_str(), &own) == 0 && kept.st_dev == own.st_dev &&
      kept.st_ino == own.st_ino) {
    return "";
  }
  std::error_code error;
  return std::filesystem::read_symlink(current, error).native();
}

// Whether the keeper that lives is the one that will be adopted.
bool IsKept(const KeeperPaths& paths, const std::string& keeper) {
  const absl::StatusOr<KeeperSurvey> survey =
      SurveyKeeper(DirectoryOf(paths, keeper));
  // When it cannot be read nothing is known, and adoption says so.
  return survey.ok() ? survey->locked : !absl::IsNotFound(survey.status());
}

void End(const std::string& place, const std::vector<ProcessStat>& processes,
         const std::string& cgroup_parent, absl::Duration timeout) {
  LeftoverQuery leftovers = {.place = place};
  if (!cgroup_parent.empty()) {
    leftovers.cgroup =
        absl::StrCat(cgroup_parent, "/", keeper::CgroupName(place));
  }
  const std::string boot_id = keeper::ReadBootId();
  for (const ProcessStat& process : processes) {
    leftovers.leaders.push_back({process.pid, process.start_time, boot_id});
  }
  const absl::StatusOr<int> killed = KillLeftovers(leftovers, timeout);
  RemoveCgroup(leftovers.cgroup);
  COHORT_LOG(kWarning,
             killed.ok() ? "leftover_attempt_ended" : "leftover_attempt_stays",
             {"keeper", place}, {"processes", processes.size()},
             {"status", killed.status()},
             {"why", "this state directory does not know it"});
}

void RemoveRuntimeDirectories(const KeeperPaths& paths,
                              const KnownHere& known) {
  int error = 0;
  for (const std::string& name :
       keeper::ListDirectory(paths.runtime_dir, &error)) {
    const std::string path = absl::StrCat(paths.runtime_dir, "/", name);
    const std::string keeper = KeeperAt(paths.runtime_dir, path);
    const absl::StatusOr<AttemptId> attempt = AttemptId::FromHex(name);
    if (keeper.empty() ? !attempt.ok() || known.attempts.contains(*attempt)
                       : known.keepers.contains(keeper)) {
      continue;
    }
    const absl::Status removed = RemoveTree(path);
    if (!removed.ok()) {
      COHORT_LOG(kWarning, "runtime_directory_not_removed", {"path", path},
                 {"error", removed.message()});
    }
  }
}

// Those that a daemon left before it closed them.  None is locked: what had
// them was ended.
void RemoveKeeperDirectories(const KeeperPaths& paths, const KnownHere& known) {
  int error = 0;
  for (const std::string& keeper :
       keeper::ListDirectory(paths.keepers_dir, &error)) {
    if (!keeper::IsKeeperId(keeper) || known.keepers.contains(keeper) ||
        IsKept(paths, keeper)) {
      continue;
    }
    const absl::Status removed = RemoveKeeperDir(DirectoryOf(paths, keeper));
    if (!removed.ok()) {
      COHORT_LOG(kWarning, "keeper_directory_not_removed", {"keeper", keeper},
                 {"error", removed.message()});
    }
  }
}

}  // namespace

absl::Status CheckIsNoCopy(const KeeperPaths& paths) {
  for (const auto& [keeper, processes] : FindMarked(paths)) {
    for (const ProcessStat& process : processes) {
      if (!IsKeeper(process.pid)) continue;
      const std::string place =
          KeepsElsewhere(process.pid, DirectoryOf(paths, keeper));
      if (place.empty()) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "process ", process.pid, " keeps processes of this node in ", place,
          ": --state-dir ",
          std::filesystem::path(paths.keepers_dir).parent_path().native(),
          " is a copy of that one (start the worker on that one; or another "
          "node on an empty --state-dir; or, to go on with the copy, end its "
          "processes first: kill ",
          process.pid, ")"));
    }
  }
  return absl::OkStatus();
}

void EndLeftoverAttempts(const KeeperPaths& paths, const KnownHere& known,
                         const std::string& cgroup_parent,
                         absl::Duration timeout) {
  Marked leftovers = FindMarked(paths);
  std::erase_if(leftovers, [&](const auto& each) {
    return known.keepers.contains(each.first) && IsKept(paths, each.first);
  });
  // All at once, so that each has the whole time to die.
  for (const auto& [keeper, processes] : leftovers) {
    for (const ProcessStat& process : processes) {
      keeper::SignalExactly(process, SIGKILL);
    }
  }
  const MachineClock clock;
  const absl::Duration deadline = clock.Monotonic() + timeout;
  for (const auto& [keeper, processes] : leftovers) {
    End(KeeperPlace(paths.runtime_dir, keeper), processes, cgroup_parent,
        deadline - clock.Monotonic());
  }
  RemoveRuntimeDirectories(paths, known);
  RemoveKeeperDirectories(paths, known);
}

}  // namespace cohort::worker
