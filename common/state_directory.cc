#include "common/state_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"

#include "common/local_files.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;

constexpr char kLockName[] = "LOCK";

// `path` and those above it that are not there, the innermost first.
std::vector<std::string> MissingOf(std::string path) {
  std::vector<std::string> missing;
  struct stat info;
  while (lstat(path.c_str(), &info) != 0 && errno == ENOENT) {
    missing.push_back(path);
    const std::string parent = ParentDirectory(path);
    if (parent == path) break;
    path = parent;
  }
  return missing;
}

// What lies in `path` but its lock.
absl::StatusOr<std::vector<fs::path>> ContentsOf(const std::string& path) {
  std::vector<fs::path> contents;
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().filename() != kLockName) contents.push_back(it->path());
  }
  if (error) return ErrnoStatus(error.value(), absl::StrCat("list ", path));
  return contents;
}

}  // namespace

absl::StatusOr<std::unique_ptr<StateDirectory>> StateDirectory::Take(
    const std::string& path, absl::string_view program,
    absl::AnyInvocable<absl::Status() &&> check) {
  auto directory = absl::WrapUnique(new StateDirectory(path));
  COHORT_RETURN_IF_ERROR(MakeStateDirectory(path));
  COHORT_RETURN_IF_ERROR(std::move(check)());
  COHORT_ASSIGN_OR_RETURN(directory->lock_, FileLock::Acquire(path, program));
  COHORT_ASSIGN_OR_RETURN(const std::vector<fs::path> contents,
                          ContentsOf(path));
  directory->is_new_ = contents.empty();
  return directory;
}

StateDirectory::StateDirectory(const std::string& path)
    : path_(path), made_(MissingOf(path)) {}

StateDirectory::~StateDirectory() {
  if (is_new_) Empty();
  // Where somebody else has put something they stay.
  for (const std::string& made : made_) rmdir(made.c_str());
}

void StateDirectory::Empty() {
  const absl::StatusOr<std::vector<fs::path>> contents = ContentsOf(path_);
  if (!contents.ok()) return;
  std::error_code ignored;
  for (const fs::path& each : *contents) fs::remove_all(each, ignored);
  // Last, while we have it: nobody else begins before.
  fs::remove(fs::path(path_) / kLockName, ignored);
}

void StateDirectory::Keep() {
  is_new_ = false;
  made_.clear();
}

}  // namespace cohort
