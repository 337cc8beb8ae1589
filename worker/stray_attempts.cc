#include "worker/stray_attempts.h"

#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "common/file.h"
#include "common/log.h"
#include "common/real_clock.h"
#include "common/strong_id.h"
#include "worker/attempt_dir.h"
#include "worker/keeper/files.h"
#include "worker/keeper/proc.h"
#include "worker/process_mark.h"
#include "worker/process_tree.h"

namespace cohort::worker {
namespace {

using keeper::ProcessStat;

// The processes of this node's part of each attempt (hex), by the marks that
// keepers and ranks carry.
using Marked = std::map<std::string, std::vector<ProcessStat>>;

std::string DirectoryOf(const NodeDirectories& directories,
                        const std::string& attempt) {
  return absl::StrCat(directories.Attempts(), "/", attempt);
}

Marked FindMarked(const NodeDirectories& directories) {
  Marked marked;
  for (const auto& [pid, process] : keeper::ReadProcesses()) {
    if (process.dead() || pid == getpid()) continue;
    const AttemptPart part = ReadPart(pid);
    const absl::StatusOr<AttemptId> attempt = AttemptId::FromHex(part.attempt);
    if (attempt.ok() && part.place == directories.Runtime(*attempt)) {
      marked[part.attempt].push_back(process);
    }
  }
  return marked;
}

bool IsKeeper(pid_t pid) {
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
bool IsKept(const NodeDirectories& directories, const std::string& attempt) {
  const absl::StatusOr<AttemptSurvey> survey =
      SurveyAttempt(DirectoryOf(directories, attempt));
  // When it cannot be read nothing is known, and adoption says so.
  if (!survey.ok()) return !absl::IsNotFound(survey.status());
  // Without its spec a keeper is not adopted: its attempt would be told as over
  // while its ranks run on.
  return survey->locked && survey->phase != AttemptPhase::kSpecDamaged &&
         survey->phase != AttemptPhase::kNoSpec;
}

void End(const AttemptPart& part, const std::vector<ProcessStat>& processes,
         const std::string& cgroup_parent, absl::Duration timeout) {
  LeftoverQuery leftovers;
  leftovers.part = part;
  if (!cgroup_parent.empty()) {
    leftovers.cgroup =
        absl::StrCat(cgroup_parent, "/",
                     keeper::CgroupName(
                         {.attempt = part.attempt, .runtime_dir = part.place}));
  }
  const std::string boot_id = keeper::ReadBootId();
  for (const ProcessStat& process : processes) {
    leftovers.ranks.push_back({process.pid, process.start_time, boot_id});
  }
  const absl::StatusOr<int> killed = KillLeftovers(leftovers, timeout);
  RemoveCgroup(leftovers.cgroup);
  COHORT_LOG(kWarning,
             killed.ok() ? "stray_attempt_ended" : "stray_attempt_left_behind",
             {"attempt", part.attempt}, {"processes", processes.size()},
             {"status", killed.status()},
             {"why",
              "this state directory does not know it, or not any more "
              "what it was asked for"});
}

void RemoveRuntimeDirectories(const NodeDirectories& directories,
                              const std::set<std::string>& known) {
  int error = 0;
  for (const std::string& name :
       keeper::ListDirectory(directories.runtime(), &error)) {
    const absl::StatusOr<AttemptId> attempt = AttemptId::FromHex(name);
    if (!attempt.ok() || known.contains(name)) continue;
    const absl::Status removed = RemoveTree(directories.Runtime(*attempt));
    if (!removed.ok()) {
      COHORT_LOG(kWarning, "runtime_directory_not_removed",
                 {"attempt", *attempt}, {"error", removed.message()});
    }
  }
}

}  // namespace

absl::Status CheckIsNoCopy(const NodeDirectories& directories) {
  for (const auto& [attempt, processes] : FindMarked(directories)) {
    for (const ProcessStat& process : processes) {
      if (!IsKeeper(process.pid)) continue;
      const std::string place =
          KeepsElsewhere(process.pid, DirectoryOf(directories, attempt));
      if (place.empty()) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "process ", process.pid, " keeps ranks of this node in ", place,
          ": --state-dir ", directories.state(),
          " is a copy of that one (start the worker on that one; or another "
          "node on an empty --state-dir; or, to go on with the copy, end the "
          "ranks first: kill ",
          process.pid, ")"));
    }
  }
  return absl::OkStatus();
}

void EndStrayAttempts(const NodeDirectories& directories,
                      const std::vector<JournalEntry>& journal,
                      const std::string& cgroup_parent,
                      absl::Duration timeout) {
  std::set<std::string> known;
  std::set<std::string> live;
  for (const JournalEntry& entry : journal) {
    const std::string attempt =
        absl::BytesToHexString(entry.desired.attempt_id());
    known.insert(attempt);
    const v1::Phase phase = entry.observed.phase();
    if (phase == v1::PHASE_STARTING || phase == v1::PHASE_RUNNING) {
      live.insert(attempt);
    }
  }
  Marked strays = FindMarked(directories);
  std::erase_if(strays, [&](const auto& stray) {
    return live.contains(stray.first) && IsKept(directories, stray.first);
  });
  // All at once, so that each has the whole time to die.
  for (const auto& [attempt, processes] : strays) {
    for (const ProcessStat& process : processes) {
      keeper::SignalExactly(process, SIGKILL);
    }
  }
  const MachineClock clock;
  const absl::Duration deadline = clock.Monotonic() + timeout;
  for (const auto& [attempt, processes] : strays) {
    End({attempt, directories.Runtime(*AttemptId::FromHex(attempt))}, processes,
        cgroup_parent, deadline - clock.Monotonic());
  }
  RemoveRuntimeDirectories(directories, known);
}

}  // namespace cohort::worker
