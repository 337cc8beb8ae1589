#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "worker/keeper/files.h"
#include "worker/keeper/reports.h"
#include "worker/keeper_host.h"

namespace cohort::worker {

// What is on disk of one rank.
struct RankRecords {
  std::optional<keeper::StartedReport> started;
  std::optional<keeper::ExitReport> exit;
};

// What an attempt's directory says at one moment (the table of
// docs/design/0002-keeper.md).
struct AttemptSurvey {
  AttemptPhase phase = AttemptPhase::kNoSpec;
  KeeperSpec spec;                             // from kNotStarted on
  std::optional<keeper::KeeperReport> keeper;  // once it was written
  // Of a damaged spec those that were started; else all.
  std::map<int, RankRecords> ranks;
  std::string message;  // for people, when something is damaged or lost
  bool locked = false;  // a keeper lives or is being born, whatever the phase
};

// Reads the directory.  NotFound when there is none; Unavailable when it cannot
// be read.  REQUIRES: no Start of this attempt is under way here.
absl::StatusOr<AttemptSurvey> SurveyAttempt(const std::string& dir);

// A new directory with its spec on disk and its lock taken, before the keeper.
struct NewAttemptDir {
  keeper::UniqueFd lock;
  keeper::UniqueFd log;  // keeper.log
};

// AlreadyExists when `dir` is there (untouched); else errors of the disk, with
// nothing left.
absl::StatusOr<NewAttemptDir> MakeAttemptDir(const std::string& dir,
                                             const KeeperSpec& spec);

// Removes `dir` with everything in it; OK when there is none.
absl::Status RemoveAttemptDir(const std::string& dir);

// The last lines of keeper.log; empty when there are none.
std::string ReadKeeperLog(const std::string& dir);

ExitStatus ToExitStatus(const keeper::ExitReport& report);

}  // namespace cohort::worker
