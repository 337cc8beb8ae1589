#include "worker/stray_attempts.h"

#include <unistd.h>

#include <csignal>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "common/file.h"
#include "common/log.h"
#include "common/real_clock.h"
#include "common/strong_id.h"
#include "worker/attempt_dir.h"
#include "worker/keeper/files.h"
#include "worker/keeper/proc.h"
#include "worker/living_keeper.h"
#include "worker/process_mark.h"
#include "worker/process_tree.h"

namespace cohort::worker {
namespace {

using keeper::ProcessStat;

struct Found {
  std::vector<ProcessStat> keepers;
  std::vector<ProcessStat> ranks;
};
using FoundAttempts = std::map<std::string, Found>;

std::string DirectoryOf(const NodeDirectories& directories,
                        const std::string& attempt) {
  return absl::StrCat(directories.Attempts(), "/", attempt);
}

// Whether the keeper is this node's, by whatever name its directory goes or
// went: others have parts of the same attempts, had this directory's name
// before they were renamed, or are in one that they share with us.
bool IsOfNode(const NodeDirectories& directories, const LivingKeeper& keeper,
              const AttemptId& attempt) {
  const std::string runtime = keeper.RuntimeDirectory();
  return runtime.empty()
             ? keeper.KeepsIn(DirectoryOf(directories, keeper.attempt()))
             : runtime == directories.Runtime(attempt);
}

// The attempt whose rank, or what a rank started, `pid` is, on this node.
std::string AttemptOfRank(pid_t pid, const NodeDirectories& directories) {
  const AttemptPart part = ReadPart(pid);
  const absl::StatusOr<AttemptId> attempt = AttemptId::FromHex(part.attempt);
  return attempt.ok() && part.place == directories.Runtime(*attempt)
             ? part.attempt
             : "";
}

FoundAttempts Look(const NodeDirectories& directories) {
  FoundAttempts found;
  for (const LivingKeeper& keeper : FindLivingKeepers()) {
    const absl::StatusOr<AttemptId> attempt =
        AttemptId::FromHex(keeper.attempt());
    if (attempt.ok() && IsOfNode(directories, keeper, *attempt)) {
      found[keeper.attempt()].keepers.push_back(keeper.process());
    }
  }
  for (const auto& [pid, process] : keeper::ReadProcesses()) {
    if (process.dead() || pid == getpid()) continue;
    const std::string attempt = AttemptOfRank(pid, directories);
    if (!attempt.empty()) found[attempt].ranks.push_back(process);
  }
  return found;
}

// Whether the keeper that lives is the one that will be adopted.
bool IsKept(const StrayQuery& query, const std::string& attempt) {
  if (!query.live.contains(attempt)) return false;
  const absl::StatusOr<AttemptSurvey> survey =
      SurveyAttempt(DirectoryOf(query.directories, attempt));
  // When it cannot be read nothing is known, and adoption says so.
  if (!survey.ok()) return !absl::IsNotFound(survey.status());
  // Without its spec a keeper is not adopted: its attempt would be told as over
  // while its ranks run on.
  return survey->locked && survey->phase != AttemptPhase::kSpecDamaged &&
         survey->phase != AttemptPhase::kNoSpec;
}

void End(const std::string& attempt, const Found& found,
         const StrayQuery& query, absl::Duration timeout) {
  LeftoverQuery leftovers;
  leftovers.part = {attempt,
                    query.directories.Runtime(*AttemptId::FromHex(attempt))};
  if (!query.cgroup_parent.empty()) {
    leftovers.cgroup =
        absl::StrCat(query.cgroup_parent, "/",
                     keeper::CgroupName({.attempt = attempt,
                                         .runtime_dir = leftovers.part.place}));
  }
  const std::string boot_id = keeper::ReadBootId();
  for (const ProcessStat& rank : found.ranks) {
    leftovers.ranks.push_back({rank.pid, rank.start_time, boot_id});
  }
  const absl::StatusOr<int> killed = KillLeftovers(leftovers, timeout);
  RemoveCgroup(leftovers.cgroup);
  COHORT_LOG(kWarning,
             killed.ok() ? "stray_attempt_ended" : "stray_attempt_left_behind",
             {"attempt", attempt}, {"keepers", found.keepers.size()},
             {"ranks", found.ranks.size()}, {"status", killed.status()},
             {"why",
              "this state directory does not know it, or not any more "
              "what it was asked for"});
}

// All at once, so that each has the whole time to die.
void Kill(const FoundAttempts& strays) {
  // Keepers first, so that they start nothing and write nothing any more; their
  // ranks die of it.
  for (const auto& [attempt, found] : strays) {
    for (const ProcessStat& keeper : found.keepers) {
      keeper::SignalExactly(keeper, SIGKILL);
    }
  }
  for (const auto& [attempt, found] : strays) {
    for (const ProcessStat& rank : found.ranks) {
      keeper::SignalExactly(rank, SIGKILL);
    }
  }
}

void RemoveRuntimeDirectories(const StrayQuery& query) {
  int error = 0;
  for (const std::string& name :
       keeper::ListDirectory(query.directories.runtime(), &error)) {
    const absl::StatusOr<AttemptId> attempt = AttemptId::FromHex(name);
    if (!attempt.ok() || query.known.contains(name)) continue;
    const absl::Status removed =
        RemoveTree(query.directories.Runtime(*attempt));
    if (!removed.ok()) {
      COHORT_LOG(kWarning, "runtime_directory_not_removed",
                 {"attempt", *attempt}, {"error", removed.message()});
    }
  }
}

// The attempts of this node that have something on this machine, as far as its
// directories know.
std::set<std::string> AttemptsHere(const NodeDirectories& directories) {
  int error = 0;
  std::set<std::string> attempts;
  for (const std::string& directory :
       {directories.runtime(), directories.Attempts()}) {
    for (const std::string& name : keeper::ListDirectory(directory, &error)) {
      if (AttemptId::FromHex(name).ok()) attempts.insert(name);
    }
  }
  return attempts;
}

// Whether a daemon could go on with the keeper in another directory than ours:
// not in one that is no more, nor where an older copy has taken the place of
// ours (EndStrayAttempts).
bool IsElsewhere(const NodeDirectories& directories,
                 const LivingKeeper& keeper) {
  const std::string ours = DirectoryOf(directories, keeper.attempt());
  return keeper.told() != ours && !keeper.KeepsIn(ours) && !keeper.IsRemoved();
}

}  // namespace

absl::Status CheckNoKeepersElsewhere(const NodeDirectories& directories) {
  const std::set<std::string> here = AttemptsHere(directories);
  for (const LivingKeeper& keeper : FindLivingKeepers()) {
    const absl::StatusOr<AttemptId> attempt =
        AttemptId::FromHex(keeper.attempt());
    if (!attempt.ok() || !IsElsewhere(directories, keeper)) continue;
    const pid_t pid = keeper.process().pid;
    const std::string runtime = keeper.RuntimeDirectory();
    if (runtime.empty() && here.contains(keeper.attempt())) {
      COHORT_LOG(kWarning, "keeper_left_alone", {"attempt", *attempt},
                 {"pid", pid}, {"directory", keeper.Place()},
                 {"why", "neither it nor its ranks tell whose it is"});
    }
    if (runtime != directories.Runtime(*attempt)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "process ", pid, " keeps ranks of this node in ", keeper.Place(),
        ": --state-dir ", directories.state(),
        " is a copy of that one.  Start the worker on that one; or, to go on "
        "with the copy, end the ranks first (kill ",
        pid, "); or, for another node, remove node_id from the copy"));
  }
  return absl::OkStatus();
}

void EndStrayAttempts(const StrayQuery& query, absl::Duration timeout) {
  FoundAttempts strays = Look(query.directories);
  std::erase_if(strays, [&query](const auto& stray) {
    return IsKept(query, stray.first);
  });
  Kill(strays);
  const MachineClock clock;
  const absl::Duration deadline = clock.Monotonic() + timeout;
  for (const auto& [attempt, found] : strays) {
    End(attempt, found, query, deadline - clock.Monotonic());
  }
  RemoveRuntimeDirectories(query);
}

}  // namespace cohort::worker
