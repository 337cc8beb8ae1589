#include "common/local_files.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "common/file.h"

namespace cohort {
namespace {

// Empty when the user has none.
std::string HomeDirectory() {
  const char* variable = std::getenv("HOME");
  if (variable != nullptr && *variable != '\0') return variable;
  char text[16 << 10];
  passwd entry;
  passwd* found = nullptr;
  if (getpwuid_r(geteuid(), &entry, text, sizeof(text), &found) != 0 ||
      found == nullptr || found->pw_dir == nullptr) {
    return "";
  }
  return found->pw_dir;
}

}  // namespace

absl::StatusOr<std::string> DefaultStateDirectory(absl::string_view name) {
  if (geteuid() == 0) return absl::StrCat("/var/lib/cohort/", name);
  const std::string home = HomeDirectory();
  if (!home.empty()) return absl::StrCat(home, "/.local/state/cohort/", name);
  return absl::InvalidArgumentError(
      absl::StrCat("HOME is not set and user ", geteuid(),
                   " has no home directory: give --state-dir"));
}

std::string DefaultStateDirectoryText(absl::string_view name) {
  return DefaultStateDirectory(name).value_or("none without a HOME");
}

absl::Status MakeStateDirectory(const std::string& path) {
  absl::Status made = MakeDirectories(path, 0700);
  if (made.ok() && access(path.c_str(), R_OK | W_OK | X_OK) != 0) {
    made = absl::PermissionDeniedError(std::strerror(errno));
  }
  if (made.ok() || absl::IsResourceExhausted(made)) return made;
  return absl::InvalidArgumentError(
      absl::StrCat("--state-dir ", path, ": ", made.message(),
                   "; name a directory that this user can make and write"));
}

absl::Status CheckReadyFile(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  const std::string directory = ParentDirectory(path);
  struct stat info;
  std::string wrong;
  if (stat(directory.c_str(), &info) != 0) {
    wrong = absl::StrCat(directory, ": ", std::strerror(errno),
                         "; make that directory first");
  } else if (!S_ISDIR(info.st_mode)) {
    wrong = absl::StrCat(directory, " is not a directory; name another file");
  } else if (access(directory.c_str(), W_OK | X_OK) != 0) {
    wrong = absl::StrCat(directory, ": ", std::strerror(errno),
                         "; name a file where this user may write");
  } else if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    wrong = "it is there and not a file; name another one";
  }
  if (wrong.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--ready-file ", path, ": ", wrong));
}

void RemoveOldReadyFile(const std::string& path) {
  // A file that cannot go cannot be replaced either, which is told then.
  if (!path.empty()) unlink(path.c_str());
}

}  // namespace cohort
