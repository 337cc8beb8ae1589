#include "worker/attempt_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"

#include "common/status_macros.h"
#include "common/status_util.h"
#include "worker/keeper/proc.h"
#include "worker/keeper/spec.h"

namespace cohort::worker {
namespace {

using keeper::Durability;
using keeper::UniqueFd;

constexpr size_t kRecordBytesMax = 64 << 10;
constexpr size_t kLogTailBytes = 2048;
// A keeper says in its log why it cannot start: also that the disk is full.
constexpr off_t kLastWordsBytes = 4096;

absl::Status Failed(const std::string& what, const std::string& path) {
  const int error = errno;
  return absl::Status(absl::ErrnoToStatusCode(error),
                      keeper::ErrnoText(what, path, error));
}

absl::Status ToStatus(const std::string& error) {
  return error.empty() ? absl::OkStatus() : absl::UnavailableError(error);
}

// The record in `dir`/`name`; nullopt when it is not there or not whole, which
// after a loss of power is the same.
template <typename T>
std::optional<T> ReadRecord(const std::string& dir, const std::string& name,
                            std::optional<T> (*parse)(const std::string&,
                                                      std::string*)) {
  int error_number = 0;
  const std::optional<std::string> bytes = keeper::ReadWhole(
      absl::StrCat(dir, "/", name), kRecordBytesMax, &error_number);
  std::string damage;
  return bytes ? parse(*bytes, &damage) : std::nullopt;
}

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// Whether a keeper lives or is being born: whether somebody holds the lock.
absl::StatusOr<bool> IsLocked(const std::string& dir) {
  const std::string path = absl::StrCat(dir, "/lock");
  // Only to look: the disk may have become read-only.
  const UniqueFd lock(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!lock && errno == ENOENT) return false;
  if (!lock) {
    return absl::UnavailableError(
        ErrnoStatus(errno, absl::StrCat("open ", path)).message());
  }
  if (flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return false;
  if (errno == EWOULDBLOCK) return true;
  return absl::UnavailableError(
      ErrnoStatus(errno, absl::StrCat("lock ", path)).message());
}

void ReadRank(const std::string& dir, int rank, AttemptSurvey* survey) {
  RankRecords& records = survey->ranks[rank];
  records.started =
      ReadRecord(dir, keeper::StartedFile(rank), &keeper::ParseStarted);
  records.exit = ReadRecord(dir, keeper::ExitFile(rank), &keeper::ParseExit);
}

// The ranks by their own records, where no spec names them.
void ReadStartedRanks(const std::string& dir, AttemptSurvey* survey) {
  int error_number = 0;
  for (const std::string& name : keeper::ListDirectory(dir, &error_number)) {
    absl::string_view number = name;
    int rank = 0;
    if (absl::ConsumePrefix(&number, "rank-") &&
        absl::ConsumeSuffix(&number, ".started") &&
        absl::SimpleAtoi(number, &rank)) {
      ReadRank(dir, rank, survey);
    }
  }
}

AttemptPhase PhaseOf(const std::string& dir, bool locked) {
  if (ReadRecord(dir, "done", &keeper::ParseDone)) return AttemptPhase::kDone;
  if (locked) return AttemptPhase::kRunning;
  return Exists(absl::StrCat(dir, "/keeper")) ? AttemptPhase::kKeeperLost
                                              : AttemptPhase::kNotStarted;
}

// Why a keeper that is gone is gone, as far as the directory knows.
std::string LossOf(const std::string& dir, const AttemptSurvey& survey) {
  if (survey.keeper && survey.keeper->boot_id != keeper::ReadBootId()) {
    return "the machine restarted";
  }
  const std::string log = ReadKeeperLog(dir);
  return log.empty() ? "the keeper died"
                     : absl::StrCat("the keeper died; its last words: ", log);
}

}  // namespace

absl::StatusOr<AttemptSurvey> SurveyAttempt(const std::string& dir) {
  if (!Exists(dir)) {
    return absl::NotFoundError(absl::StrCat("no attempt directory ", dir));
  }
  AttemptSurvey survey;
  // Before the files: a keeper that ends while we read has written them all.
  COHORT_ASSIGN_OR_RETURN(survey.locked, IsLocked(dir));
  int error_number = 0;
  const std::optional<std::string> bytes = keeper::ReadWhole(
      absl::StrCat(dir, "/spec"), keeper::kSpecBytesMax, &error_number);
  if (!bytes && error_number == ENOENT) return survey;
  std::optional<KeeperSpec> spec;
  if (bytes) {
    spec = keeper::ParseSpec(*bytes, &survey.message);
  } else {
    survey.message = ErrnoStatus(error_number, "read").ToString();
  }
  survey.keeper = ReadRecord(dir, "keeper", &keeper::ParseKeeper);
  if (!spec) {
    ReadStartedRanks(dir, &survey);
    survey.phase = AttemptPhase::kSpecDamaged;
    survey.message = absl::StrCat(
        dir, "/spec: ", survey.message,
        survey.locked ? "; its keeper still runs: end it with SIGTERM" : "");
    return survey;
  }
  survey.spec = *std::move(spec);
  survey.phase = PhaseOf(dir, survey.locked);
  for (const keeper::RankSpec& rank : survey.spec.ranks) {
    ReadRank(dir, rank.rank, &survey);
  }
  if (survey.phase == AttemptPhase::kKeeperLost) {
    survey.message = LossOf(dir, survey);
  }
  return survey;
}

absl::StatusOr<NewAttemptDir> MakeAttemptDir(const std::string& dir,
                                             const KeeperSpec& spec) {
  if (mkdir(dir.c_str(), 0700) != 0) {
    if (errno == EEXIST) {
      return absl::AlreadyExistsError(
          absl::StrCat("attempt ", spec.attempt, " has a directory: ", dir));
    }
    return Failed("make directory", dir);
  }
  absl::Cleanup remove = [&dir] { RemoveAttemptDir(dir).IgnoreError(); };
  COHORT_RETURN_IF_ERROR(ToStatus(keeper::WriteByRename(
      dir, "spec", keeper::EncodeSpec(spec), Durability::kPowerLoss)));
  NewAttemptDir made;
  const std::string lock = absl::StrCat(dir, "/lock");
  made.lock = UniqueFd(open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!made.lock || flock(made.lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return Failed("lock", lock);
  }
  const std::string log = absl::StrCat(dir, "/keeper.log");
  made.log = UniqueFd(
      open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!made.log) return Failed("create", log);
  if (fallocate(made.log.get(), FALLOC_FL_KEEP_SIZE, 0, kLastWordsBytes) != 0 &&
      errno != EOPNOTSUPP) {
    return Failed("take disk space for", log);
  }
  std::move(remove).Cancel();
  return made;
}

absl::Status RemoveAttemptDir(const std::string& dir) {
  std::error_code error;
  std::filesystem::remove_all(dir, error);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("remove ", dir, ": ", error.message()));
}

std::string ReadKeeperLog(const std::string& dir) {
  int error_number = 0;
  const std::optional<std::string> log = keeper::ReadWhole(
      absl::StrCat(dir, "/keeper.log"), keeper::kSpecBytesMax, &error_number);
  if (!log) return "";
  const size_t begin = log->size() - std::min(log->size(), kLogTailBytes);
  return std::string(absl::StripAsciiWhitespace(log->substr(begin)));
}

ExitStatus ToExitStatus(const keeper::ExitReport& report) {
  ExitStatus status;
  status.exit_code = report.exit_code;
  status.signal = report.signal;
  status.oom_killed = report.oom_killed;
  status.cause = report.cause;
  status.message = report.message;
  status.ran = absl::Milliseconds(report.ran_ms);
  return status;
}

}  // namespace cohort::worker
