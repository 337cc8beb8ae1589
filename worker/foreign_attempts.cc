#include "worker/foreign_attempts.h"

#include <sys/stat.h>
#include <unistd.h>

#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "common/file.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/strong_id.h"
#include "worker/attempt_dir.h"
#include "worker/keeper/files.h"
#include "worker/living_keeper.h"
#include "worker/runtime_directory.h"

namespace cohort::worker {
namespace {

std::set<AttemptId> AttemptsIn(const NodeDirectories& directories) {
  std::set<AttemptId> attempts;
  int error = 0;
  for (const std::string& directory :
       {directories.Journal(), directories.Attempts()}) {
    for (const std::string& name : keeper::ListDirectory(directory, &error)) {
      const absl::StatusOr<AttemptId> attempt = AttemptId::FromHex(name);
      if (attempt.ok()) attempts.insert(*attempt);
    }
  }
  return attempts;
}

std::string DirectoryOf(const NodeDirectories& directories,
                        const AttemptId& attempt) {
  return absl::StrCat(directories.Attempts(), "/", attempt.ToHex());
}

// The process that keeps it in this directory; 0: there is none.
pid_t KeeperIn(const NodeDirectories& directories, const AttemptId& attempt) {
  for (const LivingKeeper& keeper : FindLivingKeepers()) {
    if (keeper.KeepsIn(DirectoryOf(directories, attempt))) {
      return keeper.process().pid;
    }
  }
  return 0;
}

bool IsForeign(const NodeDirectories& directories, const AttemptId& attempt) {
  const absl::StatusOr<AttemptSurvey> survey =
      SurveyAttempt(DirectoryOf(directories, attempt));
  if (!survey.ok() || survey->spec.runtime_dir.empty()) return false;
  const std::string runtime = ParentDirectory(survey->spec.runtime_dir);
  return runtime != directories.runtime() &&
         RuntimeDirectory::IsOfANode(runtime) &&
         KeeperIn(directories, attempt) == 0;
}

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// Whether `path`, one of its directories, is in this state directory: it may
// lead to a disk that the other node uses too, where all is that one's own.
bool IsOwn(const NodeDirectories& directories, const std::string& path) {
  struct stat state;
  struct stat there;
  return stat(directories.state().c_str(), &state) == 0 &&
         lstat(path.c_str(), &there) == 0 && S_ISDIR(there.st_mode) &&
         there.st_dev == state.st_dev;
}

// What cannot be removed and is not the journal's costs room, nothing else.
void RemoveOrTell(const std::string& path) {
  const absl::Status removed = RemoveTree(path);
  if (removed.ok()) return;
  COHORT_LOG(kWarning, "not_removed", {"path", path},
             {"error", removed.message()});
}

// FailedPrecondition when one of them is in a journal that is not ours to
// change.
absl::Status CheckJournal(const NodeDirectories& directories,
                          const std::set<AttemptId>& attempts) {
  if (IsOwn(directories, directories.Journal())) return absl::OkStatus();
  for (const AttemptId& attempt : attempts) {
    if (!Exists(directories.JournalFile(attempt))) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        directories.Journal(),
        " leads elsewhere and has attempts of another node, of which this "
        "--state-dir is a copy and which may use it still: put an empty "
        "directory in its place"));
  }
  return absl::OkStatus();
}

absl::Status Remove(const NodeDirectories& directories,
                    const std::set<AttemptId>& attempts) {
  COHORT_RETURN_IF_ERROR(CheckJournal(directories, attempts));
  for (const AttemptId& attempt : attempts) {
    COHORT_LOG(
        kWarning, "attempt_of_another_node_removed",
        {"attempt", attempt.ToHex()},
        {"why", "--state-dir is a copy of that node's; there it is as it was"});
    COHORT_RETURN_IF_ERROR(RemoveTree(directories.JournalFile(attempt)));
    if (IsOwn(directories, directories.AllWork())) {
      RemoveOrTell(directories.Work(attempt));
    }
    // Last: it tells whose the attempt is.
    if (IsOwn(directories, directories.Attempts())) {
      RemoveOrTell(DirectoryOf(directories, attempt));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RemoveAttemptsWithoutNode(const NodeDirectories& directories) {
  const std::set<AttemptId> attempts = AttemptsIn(directories);
  for (const AttemptId& attempt : attempts) {
    const pid_t pid = KeeperIn(directories, attempt);
    if (pid == 0) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        directories.NodeIdFile(), " is missing, and process ", pid,
        " keeps ranks in this directory: write the id there, as `cohort nodes "
        "list --json` shows it; or, for another node, ",
        IsOwn(directories, directories.Attempts())
            ? absl::StrCat("end the ranks first (kill ", pid, ")")
            : absl::StrCat("put an empty directory in place of ",
                           directories.Attempts(), ", which leads elsewhere")));
  }
  return Remove(directories, attempts);
}

absl::Status RemoveForeignAttempts(const NodeDirectories& directories) {
  // What the journal does not know and lies elsewhere troubles nobody.
  const bool has_own = IsOwn(directories, directories.Attempts());
  std::set<AttemptId> foreign = AttemptsIn(directories);
  std::erase_if(foreign, [&](const AttemptId& attempt) {
    return !IsForeign(directories, attempt) ||
           (!has_own && !Exists(directories.JournalFile(attempt)));
  });
  return Remove(directories, foreign);
}

}  // namespace cohort::worker
