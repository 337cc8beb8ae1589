#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "worker/keeper/files.h"
#include "worker/keeper/reports.h"
#include "worker/keeper_host.h"

namespace cohort::worker {

// What is on disk of one process.
struct ProcessRecords {
  std::string log_dir;  // by its spec; empty when that cannot be read
  std::optional<keeper::StartedReport> started;
  std::optional<keeper::ExitReport> exit;
  bool ended = false;
};

// What a keeper's directory says at one moment (the table of
// docs/design/0002-keeper.md).
struct KeeperSurvey {
  bool locked = false;  // a keeper lives or is being started
  std::optional<keeper::KeeperReport> keeper;  // the last one that lived
  std::map<ProcessKey, ProcessRecords> processes;
};

// The runtime directory of a keeper: its socket's, and the mark of its
// processes.
std::string KeeperPlace(absl::string_view node_runtime_dir,
                        absl::string_view keeper);
// The keeper with that place in the node's runtime directory; empty for any
// other place.
std::string KeeperAt(absl::string_view node_runtime_dir,
                     absl::string_view place);

// Reads the directory.  NotFound when there is none; Unavailable when it cannot
// be read.
absl::StatusOr<KeeperSurvey> SurveyKeeper(const std::string& dir);

// A directory whose lock is taken, for a keeper that is about to be started.
struct LockedKeeperDir {
  keeper::UniqueFd lock;
  keeper::UniqueFd log;  // keeper.log
};

// Takes the lock of `dir`, which is there.  Unavailable when a keeper has it;
// else errors of the disk.
absl::StatusOr<LockedKeeperDir> LockKeeperDir(const std::string& dir);

// Makes `dir` when it is missing and writes the spec into it.  Not synced: what
// it describes does not survive the machine either.
absl::Status WriteSpec(const std::string& dir, const ProcessSpec& spec);

// Records that a process has ended so, where its keeper could not.
absl::Status RecordEnded(const std::string& dir,
                         const keeper::ExitReport& report);

// Removes all files of a process; OK when there are none.
absl::Status RemoveRecords(const std::string& dir, const ProcessKey& process);

// Removes `dir` with everything in it; OK when there is none.
absl::Status RemoveKeeperDir(const std::string& dir);

// The last lines of keeper.log; empty when there are none.
std::string ReadKeeperLog(const std::string& dir);

}  // namespace cohort::worker
