#include "client/cli/kept_results.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace cohort::cli {
namespace {

namespace fs = std::filesystem;

// Whether anything was written there: ranks find directories made for them.
bool HasFile(const fs::path& directory) {
  std::error_code error;
  for (fs::recursive_directory_iterator it(directory, error), end;
       !error && it != end; it.increment(error)) {
    if (it->is_symlink(error) || !it->is_directory(error)) return true;
  }
  return false;
}

std::error_code Move(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_directories(to.parent_path(), error);
  if (error) return error;
  fs::rename(from, to, error);
  if (error != std::errc::cross_device_link) return error;
  error.clear();
  fs::copy(from, to,
           fs::copy_options::recursive | fs::copy_options::copy_symlinks,
           error);
  return error;
}

// What actors keep for their next incarnation, which will not come.
constexpr char kStateName[] = "state";

// Of one job: its run directory and its checkpoints, without the marks of the
// worker beside them.
absl::Status KeepJob(const fs::path& from, const fs::path& to) {
  absl::Status status;
  std::error_code error;
  for (fs::directory_iterator it(from, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    if (!it->is_directory(ignored) || !HasFile(it->path()) ||
        it->path().filename() == kStateName) {
      continue;
    }
    const fs::path target = to / it->path().filename();
    const std::error_code moved = Move(it->path(), target);
    if (!moved) continue;
    status.Update(absl::UnavailableError(absl::StrCat(
        "results are lost: ", target.string(), ": ", moved.message())));
  }
  return status;
}

}  // namespace

absl::Status KeepResults(const std::string& from, const std::string& to) {
  absl::Status status;
  std::error_code error;
  for (fs::directory_iterator it(from, error), end; !error && it != end;
       it.increment(error)) {
    status.Update(KeepJob(it->path(), fs::path(to) / it->path().filename()));
  }
  // None: nothing ran.
  if (!error || error == std::errc::no_such_file_or_directory) return status;
  status.Update(absl::UnavailableError(
      absl::StrCat("results are lost: ", from, ": ", error.message())));
  return status;
}

}  // namespace cohort::cli
