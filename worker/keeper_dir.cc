#include "worker/keeper_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"

#include "common/status_macros.h"
#include "common/status_util.h"
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
template <typename Report>
std::optional<Report> Read(const std::string& dir, const std::string& name) {
  int error_number = 0;
  const std::optional<std::string> bytes = keeper::ReadWhole(
      absl::StrCat(dir, "/", name), kRecordBytesMax, &error_number);
  std::string damage;
  return bytes ? keeper::Parse<Report>(*bytes, &damage) : std::nullopt;
}

// Whether a keeper lives or is being started: whether somebody holds the lock.
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

ProcessRecords ReadRecords(const std::string& dir, const ProcessKey& key) {
  ProcessRecords records;
  int error_number = 0;
  std::string damage;
  const std::optional<std::string> bytes =
      keeper::ReadWhole(absl::StrCat(dir, "/", keeper::SpecFile(key)),
                        keeper::kSpecBytesMax, &error_number);
  const std::optional<ProcessSpec> spec =
      bytes ? keeper::ParseSpec(*bytes, &damage) : std::nullopt;
  if (spec) records.log_dir = spec->log_dir;
  // Against the order in which a keeper that lives writes them.
  records.exit = Read<keeper::ExitReport>(dir, keeper::ExitFile(key));
  if (!records.exit) {
    records.exit = Read<keeper::ExitReport>(dir, keeper::EndedFile(key));
    records.ended = records.exit.has_value();
  }
  records.started = Read<keeper::StartedReport>(dir, keeper::StartedFile(key));
  return records;
}

// The process whose file is called `name`.
std::optional<ProcessKey> KeyOf(const std::string& name) {
  return keeper::ParseProcessKey(name.substr(0, name.rfind('.')));
}

}  // namespace

std::string KeeperPlace(absl::string_view node_runtime_dir,
                        absl::string_view keeper) {
  return absl::StrCat(node_runtime_dir, "/k-", keeper);
}

std::string KeeperAt(absl::string_view node_runtime_dir,
                     absl::string_view place) {
  return absl::ConsumePrefix(&place, KeeperPlace(node_runtime_dir, "")) &&
                 keeper::IsKeeperId(std::string(place))
             ? std::string(place)
             : "";
}

absl::StatusOr<KeeperSurvey> SurveyKeeper(const std::string& dir) {
  KeeperSurvey survey;
  // Before the files: a keeper that ends while we read has written them all.
  COHORT_ASSIGN_OR_RETURN(survey.locked, IsLocked(dir));
  int error_number = 0;
  const std::vector<std::string> names =
      keeper::ListDirectory(dir, &error_number);
  if (error_number == ENOENT) {
    return absl::NotFoundError(absl::StrCat("no keeper directory ", dir));
  }
  if (error_number != 0) {
    return absl::UnavailableError(
        ErrnoStatus(error_number, absl::StrCat("list ", dir)).message());
  }
  survey.keeper = Read<keeper::KeeperReport>(dir, "keeper");
  for (const std::string& name : names) {
    const std::optional<ProcessKey> key = KeyOf(name);
    if (key && !survey.processes.contains(*key)) {
      survey.processes[*key] = ReadRecords(dir, *key);
    }
  }
  return survey;
}

absl::StatusOr<LockedKeeperDir> LockKeeperDir(const std::string& dir) {
  LockedKeeperDir locked;
  const std::string lock = absl::StrCat(dir, "/lock");
  locked.lock =
      UniqueFd(open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!locked.lock || flock(locked.lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return Failed("lock", lock);
  }
  // Its readers find no earlier keeper in it.
  unlink(absl::StrCat(dir, "/keeper").c_str());
  const std::string log = absl::StrCat(dir, "/keeper.log");
  locked.log = UniqueFd(open(
      log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600));
  if (!locked.log) return Failed("create", log);
  if (fallocate(locked.log.get(), FALLOC_FL_KEEP_SIZE, 0, kLastWordsBytes) !=
          0 &&
      errno != EOPNOTSUPP) {
    return Failed("take disk space for", log);
  }
  return locked;
}

absl::Status WriteSpec(const std::string& dir, const ProcessSpec& spec) {
  COHORT_RETURN_IF_ERROR(ToStatus(keeper::MakeDirectories(dir)));
  return ToStatus(keeper::WriteByRename(dir, keeper::SpecFile(spec.key()),
                                        keeper::EncodeSpec(spec),
                                        Durability::kCrash));
}

absl::Status RecordEnded(const std::string& dir,
                         const keeper::ExitReport& report) {
  const std::string file = keeper::EndedFile(report.process);
  return ToStatus(keeper::WriteByRename(dir, file, keeper::Encode(report),
                                        Durability::kCrash));
}

absl::Status RemoveRecords(const std::string& dir, const ProcessKey& process) {
  // The spec last: it says what else there may be.
  for (const std::string& file :
       {"." + keeper::ExitFile(process), keeper::StartedFile(process),
        keeper::ExitFile(process), keeper::EndedFile(process),
        keeper::SpecFile(process)}) {
    const std::string path = absl::StrCat(dir, "/", file);
    if (unlink(path.c_str()) != 0 && errno != ENOENT) {
      return absl::UnavailableError(keeper::ErrnoText("remove", path, errno));
    }
  }
  return absl::OkStatus();
}

absl::Status RemoveKeeperDir(const std::string& dir) {
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

}  // namespace cohort::worker
