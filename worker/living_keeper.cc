#include "worker/living_keeper.h"

#include <sys/stat.h>

#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

#include "common/file.h"
#include "worker/attempt_dir.h"
#include "worker/keeper/files.h"
#include "worker/process_mark.h"

namespace cohort::worker {
namespace {

constexpr size_t kCommandLineBytesMax = 64 << 10;

}  // namespace

LivingKeeper::LivingKeeper(keeper::ProcessStat process, const std::string& told)
    : process_(process), told_(CleanPath(told)) {}

std::string LivingKeeper::attempt() const {
  return told_.substr(told_.rfind('/') + 1);
}

std::string LivingKeeper::Way() const {
  const std::string current = absl::StrCat("/proc/", process_.pid, "/cwd");
  std::error_code error;
  const std::filesystem::path place =
      std::filesystem::read_symlink(current, error);
  // Those of older daemons are in no directory of their own, and write where
  // they were told.
  return error || place == "/" ? told_ : current;
}

std::string LivingKeeper::Place() const {
  const std::string way = Way();
  std::error_code error;
  const std::filesystem::path place = std::filesystem::read_symlink(way, error);
  return error ? way : place.native();
}

bool LivingKeeper::KeepsIn(const std::string& directory) const {
  struct stat kept;
  struct stat given;
  return stat(Way().c_str(), &kept) == 0 &&
         stat(directory.c_str(), &given) == 0 && kept.st_dev == given.st_dev &&
         kept.st_ino == given.st_ino;
}

bool LivingKeeper::IsRemoved() const {
  struct stat kept;
  return stat(Way().c_str(), &kept) != 0 || kept.st_nlink == 0;
}

std::string LivingKeeper::RuntimeDirectory() const {
  if (!IsOfThisUser(process_.pid)) return "";
  const absl::StatusOr<AttemptSurvey> survey = SurveyAttempt(Way());
  if (survey.ok() && !survey->spec.runtime_dir.empty()) {
    return survey->spec.runtime_dir;
  }
  for (const auto& [pid, process] : keeper::ReadProcesses()) {
    if (process.parent != process_.pid) continue;
    const AttemptPart part = PartIn(keeper::ReadEnvironment(pid));
    if (part.attempt == attempt() && !part.place.empty()) return part.place;
  }
  return "";
}

std::vector<LivingKeeper> FindLivingKeepers() {
  std::vector<LivingKeeper> keepers;
  for (const auto& [pid, process] : keeper::ReadProcesses()) {
    const std::string told = process.dead() ? "" : DirectoryOfKeeper(pid);
    if (!told.empty()) keepers.emplace_back(process, told);
  }
  return keepers;
}

std::string DirectoryOfKeeper(pid_t pid) {
  int error = 0;
  const std::optional<std::string> line = keeper::ReadWhole(
      absl::StrCat("/proc/", pid, "/cmdline"), kCommandLineBytesMax, &error);
  if (!line.has_value()) return "";
  const std::vector<absl::string_view> words =
      absl::StrSplit(*line, absl::ByChar('\0'), absl::SkipEmpty());
  if (words.size() != 2 || !absl::EndsWith(words[0], "cohort-keeper")) {
    return "";
  }
  return std::string(words[1]);
}

}  // namespace cohort::worker
