#include "common/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort {
namespace {

absl::Status Failed(absl::string_view action, const std::string& path) {
  const int error = errno;
  const std::string what = absl::StrCat(action, " ", path);
  if (error != ENOSPC && error != EDQUOT) return ErrnoStatus(error, what);
  return ErrnoStatus(
      error, absl::StrCat("the disk under ", ParentDirectory(path),
                          error == ENOSPC ? " is full: free space on it ("
                                          : " is over this user's quota: free "
                                            "space on it (",
                          what, ")"));
}

absl::StatusOr<std::string> ReadAll(int fd, const std::string& path,
                                    size_t bytes_max) {
  std::string bytes;
  char piece[64 << 10];
  while (true) {
    const ssize_t n = ::read(fd, piece, sizeof(piece));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed("read", path);
    if (n == 0) return bytes;
    bytes.append(piece, static_cast<size_t>(n));
    if (bytes.size() > bytes_max) {
      return absl::FailedPreconditionError(absl::StrCat(
          path, " holds more than the ", bytes_max, " bytes it may have"));
    }
  }
}

// "12 cohort-head", as the holder of a lock file wrote it; empty: nothing yet.
std::string ReadHolder(int fd, const std::string& path) {
  if (::lseek(fd, 0, SEEK_SET) != 0) return "";
  const absl::StatusOr<std::string> text = ReadAll(fd, path, 4096);
  return text.ok() ? std::string(absl::StripAsciiWhitespace(*text)) : "";
}

// For people: "process 12 (cohort-head)".
std::string HolderText(absl::string_view line) {
  const size_t space = line.find(' ');
  // Locked, but not written yet.
  if (space == absl::string_view::npos) return "another process";
  return absl::StrCat("process ", absl::CHexEscape(line.substr(0, space)), " (",
                      absl::CHexEscape(line.substr(space + 1)), ")");
}

// A process that was killed holds its locks until its memory is freed, which
// takes a while of much of it; its command line is gone at once.
bool IsEnding(pid_t pid) {
  const absl::StatusOr<std::string> command =
      ReadFile(absl::StrCat("/proc/", pid, "/cmdline"), 4096);
  return command.ok() ? command->empty() : absl::IsNotFound(command.status());
}

// Waits for a holder that is ending, or was killed this moment, to be gone.
void AwaitEnding(int fd, const std::string& path) {
  constexpr int kAMomentMs = 100;
  constexpr int kEndingMs = 10'000;
  const std::string line = ReadHolder(fd, path);
  pid_t pid = 0;
  if (!absl::SimpleAtoi(line.substr(0, line.find(' ')), &pid)) return;
  const UniqueFd holder(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!holder) return;
  struct pollfd gone = {.fd = holder.get(), .events = POLLIN, .revents = 0};
  if (::poll(&gone, 1, kAMomentMs) == 0 && IsEnding(pid)) {
    ::poll(&gone, 1, kEndingMs);
  }
}

absl::Status Lock(int fd, const std::string& directory, const std::string& path,
                  int kind) {
  if (::flock(fd, kind | LOCK_NB) == 0) return absl::OkStatus();
  if (errno == EWOULDBLOCK) {
    AwaitEnding(fd, path);
    if (::flock(fd, kind | LOCK_NB) == 0) return absl::OkStatus();
  }
  if (errno != EWOULDBLOCK) return Failed("lock", path);
  return SetReason(
      absl::FailedPreconditionError(absl::StrCat(
          directory, " is in use by ", HolderText(ReadHolder(fd, path)),
          ": stop it, or choose another directory")),
      "locked");
}

absl::Status Foreign(const std::string& path, absl::string_view why) {
  return SetReason(
      absl::FailedPreconditionError(absl::StrCat(
          path, " ", why, ": remove it, or choose another directory")),
      "foreign_directory");
}

bool IsEmpty(int directory) {
  const int copy = ::openat(directory, ".", O_RDONLY | O_CLOEXEC);
  DIR* const listing = copy < 0 ? nullptr : ::fdopendir(copy);
  if (listing == nullptr) return false;
  int entries = 0;  // "." and ".." are two
  while (entries <= 2 && ::readdir(listing) != nullptr) ++entries;
  ::closedir(listing);
  return entries <= 2;
}

// Opens a directory in which nobody but this user, and root, can change
// anything.  A link to it may be root's or this user's.
absl::StatusOr<UniqueFd> OpenOwnDirectory(const std::string& path) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0) return Failed("open", path);
  const bool is_link = S_ISLNK(info.st_mode);
  if (is_link && info.st_uid != ::geteuid() && info.st_uid != 0) {
    return Foreign(
        path, absl::StrCat("is a link that belongs to user ", info.st_uid));
  }
  UniqueFd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC |
                                              (is_link ? 0 : O_NOFOLLOW)));
  if (!directory || ::fstat(directory.get(), &info) != 0) {
    return Failed("open", path);
  }
  if (info.st_uid != ::geteuid()) {
    return Foreign(
        path, absl::StrCat("belongs to user ", info.st_uid, " and not to ",
                           ::geteuid(), ", who would own what is put there"));
  }
  constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;
  if ((info.st_mode & kOthersWrite) == 0) return directory;
  if (!IsEmpty(directory.get())) {
    return Foreign(path,
                   "has files and is writable by others, whose they may be "
                   "(chmod go-w if they are yours)");
  }
  // As a volume that was just made.
  if (::fchmod(directory.get(), info.st_mode & ~kOthersWrite & 07777) != 0) {
    return Failed("chmod", path);
  }
  return directory;
}

// Whether `path` is still the name of the file.
absl::StatusOr<bool> HasName(int fd, const std::string& path) {
  struct stat file;
  struct stat named;
  if (::fstat(fd, &file) != 0) return Failed("look at", path);
  if (::lstat(path.c_str(), &named) != 0) {
    if (errno == ENOENT) return false;
    return Failed("look at", path);
  }
  return file.st_dev == named.st_dev && file.st_ino == named.st_ino;
}

// `<directory>/LOCK`, below the directory that is open as `at`, opened with
// `flags` and locked as `kind`.  NotFound when it is not there and not made.
absl::StatusOr<UniqueFd> OpenLocked(int at, const std::string& directory,
                                    int flags, int kind) {
  // Each more is one more holder that removed it while we waited.
  constexpr int kTriesMax = 100;
  const std::string path = absl::StrCat(directory, "/LOCK");
  for (int i = 0; i < kTriesMax; ++i) {
    // Not waiting, should it be a pipe.
    UniqueFd fd(::openat(at, "LOCK",
                         flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644));
    if (!fd && errno == ELOOP) return Foreign(path, "is a link");
    if (!fd && errno == EISDIR) {
      return absl::FailedPreconditionError(absl::StrCat(
          path,
          " is in the way: it is a directory where a lock file belongs; "
          "remove it, or choose another directory"));
    }
    if (!fd) return Failed("open", path);
    struct stat info;
    if (::fstat(fd.get(), &info) != 0) return Failed("look at", path);
    if (!S_ISREG(info.st_mode)) return Foreign(path, "is not a file");
    COHORT_RETURN_IF_ERROR(Lock(fd.get(), directory, path, kind));
    // Else somebody else can lock the file that has the name now.
    COHORT_ASSIGN_OR_RETURN(const bool has_name, HasName(fd.get(), path));
    if (has_name) return fd;
  }
  return absl::UnavailableError(
      absl::StrCat(path, " was removed again and again"));
}

// Removes a directory with one descriptor open at a time, and without paths: a
// tree may be deeper than either can be.
class TreeRemoval {
 public:
  explicit TreeRemoval(const std::string& path) : path_(path) {}

  absl::Status Run() {
    COHORT_RETURN_IF_ERROR(Enter(AT_FDCWD, path_));
    while (true) {
      Level& level = levels_.back();
      if (!level.directories.empty()) {
        const std::string name = std::move(level.directories.back());
        level.directories.pop_back();
        COHORT_RETURN_IF_ERROR(Enter(at_.get(), name));
        continue;
      }
      const std::string name = std::move(level.name);
      levels_.pop_back();
      if (levels_.empty()) {
        if (::rmdir(path_.c_str()) == 0 || errno == ENOENT) break;
        return Error();
      }
      COHORT_RETURN_IF_ERROR(Leave());
      if (::unlinkat(at_.get(), name.c_str(), AT_REMOVEDIR) != 0 &&
          errno != ENOENT) {
        return Error();
      }
    }
    return absl::OkStatus();
  }

 private:
  struct Level {
    std::string name;
    ino_t inode = 0;
    std::vector<std::string> directories;  // that are left in it
  };

  absl::Status Error() const {
    return ErrnoStatus(errno, absl::StrCat("remove ", path_));
  }

  // Opens the directory and removes what is in it, but directories.
  absl::Status Enter(int parent, const std::string& name) {
    constexpr int kHow = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    UniqueFd directory(::openat(parent, name.c_str(), kHow));
    if (!directory && errno == EACCES &&
        ::fchmodat(parent, name.c_str(), 0700, 0) == 0) {
      directory.Reset(::openat(parent, name.c_str(), kHow));
    }
    struct stat info;
    if (!directory || ::fstat(directory.get(), &info) != 0) return Error();
    if ((info.st_mode & S_IRWXU) != S_IRWXU) ::fchmod(directory.get(), 0700);
    at_ = std::move(directory);
    levels_.push_back({.name = name, .inode = info.st_ino});
    return RemoveFiles(levels_.back().directories);
  }

  absl::Status RemoveFiles(std::vector<std::string>& directories) {
    DIR* const listing = ::fdopendir(::dup(at_.get()));
    if (listing == nullptr) return Error();
    const absl::Cleanup close = [listing] { ::closedir(listing); };
    while (const dirent* const entry = ::readdir(listing)) {
      const absl::string_view name = entry->d_name;
      if (name == "." || name == "..") continue;
      if (entry->d_type != DT_DIR &&
          (::unlinkat(at_.get(), entry->d_name, 0) == 0 || errno == ENOENT)) {
        continue;
      }
      // A file system that does not tell what it is, says it so.
      if (entry->d_type != DT_DIR && errno != EISDIR) return Error();
      directories.emplace_back(name);
    }
    return absl::OkStatus();
  }

  // Up to where the last level but one was entered from.
  absl::Status Leave() {
    UniqueFd parent(
        ::openat(at_.get(), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    struct stat info;
    if (!parent || ::fstat(parent.get(), &info) != 0) return Error();
    if (info.st_ino != levels_.back().inode) {
      return absl::AbortedError(
          absl::StrCat("remove ", path_, ": it was moved meanwhile"));
    }
    at_ = std::move(parent);
    return absl::OkStatus();
  }

  const std::string& path_;
  UniqueFd at_;  // the last level
  std::vector<Level> levels_;
};

}  // namespace

std::string ParentDirectory(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  const size_t slash = path.rfind('/', end);
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string CleanPath(const std::string& path) {
  std::vector<absl::string_view> parts = absl::StrSplit(path, '/');
  std::erase_if(parts, [](absl::string_view part) {
    return part.empty() || part == ".";
  });
  const bool absolute = absl::StartsWith(path, "/");
  const std::string clean =
      absl::StrCat(absolute ? "/" : "", absl::StrJoin(parts, "/"));
  return clean.empty() && !path.empty() ? "." : clean;
}

absl::StatusOr<std::string> ReadFile(const std::string& path,
                                     size_t bytes_max) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return Failed("open", path);
  return ReadAll(fd.get(), path, bytes_max);
}

absl::StatusOr<std::string> ReadRegularFile(const std::string& path,
                                            size_t bytes_max) {
  const UniqueFd fd(
      ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat info;
  if (!fd || ::fstat(fd.get(), &info) != 0) return Failed("open", path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a file"));
  }
  return ReadAll(fd.get(), path, bytes_max);
}

absl::Status WriteFileAtomically(const std::string& path,
                                 absl::string_view bytes, mode_t mode) {
  std::string temporary = absl::StrCat(path, ".tmp.XXXXXX");
  UniqueFd fd(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!fd) return Failed("create", temporary);
  absl::Cleanup remove = [&temporary] { ::unlink(temporary.c_str()); };
  if (::fchmod(fd.get(), mode) != 0) return Failed("chmod", temporary);
  COHORT_RETURN_IF_ERROR(WriteAll(fd.get(), temporary, bytes));
  if (::fsync(fd.get()) != 0) return Failed("sync", temporary);
  // Some file systems report a full disk only here.
  if (::close(fd.Release()) != 0) return Failed("close", temporary);
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    return Failed("rename to", path);
  }
  std::move(remove).Cancel();
  return SyncDirectory(ParentDirectory(path));
}

absl::Status WriteAll(int fd, const std::string& path,
                      absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed("write", path);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> OpenDirectoryBelow(int root, absl::string_view path,
                                            mode_t mode) {
  UniqueFd at(::openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!at) return Failed("open directory", std::string(path));
  for (const absl::string_view part : absl::StrSplit(path, '/')) {
    const std::string name(part);
    if (name.empty() || name == ".") continue;
    if (name == "..") {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " leads out of its directory"));
    }
    if (::mkdirat(at.get(), name.c_str(), mode) != 0 && errno != EEXIST) {
      return Failed("make directory", std::string(path));
    }
    UniqueFd next(::openat(at.get(), name.c_str(),
                           O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!next) return Failed("open directory", std::string(path));
    at = std::move(next);
  }
  return at;
}

std::string FindProgram(absl::string_view search_path, absl::string_view name) {
  for (const absl::string_view directory : absl::StrSplit(search_path, ':')) {
    if (directory.empty()) continue;
    std::string program = absl::StrCat(directory, "/", name);
    struct stat info;
    if (::stat(program.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
        ::access(program.c_str(), X_OK) == 0) {
      return program;
    }
  }
  return "";
}

absl::Status SyncDirectory(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return Failed("open directory", path);
  if (::fsync(fd.get()) != 0) return Failed("sync directory", path);
  return absl::OkStatus();
}

absl::Status MakeDirectories(const std::string& path, mode_t mode) {
  if (::mkdir(path.c_str(), mode) == 0) return absl::OkStatus();
  if (errno == ENOENT && ParentDirectory(path) != path) {
    COHORT_RETURN_IF_ERROR(MakeDirectories(ParentDirectory(path), mode));
    if (::mkdir(path.c_str(), mode) == 0) return absl::OkStatus();
  }
  if (errno != EEXIST) return Failed("make directory", path);
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return Failed("look at", path);
  if (S_ISDIR(info.st_mode)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(path, " is in the way: it is not a directory"));
}

absl::Status RemoveTree(const std::string& path) {
  const std::string name = CleanPath(path);
  if (name.empty() || ::unlink(name.c_str()) == 0 || errno == ENOENT) {
    return absl::OkStatus();
  }
  const int error = errno;
  struct stat info;
  if (::lstat(name.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    return TreeRemoval(name).Run();
  }
  return ErrnoStatus(error, absl::StrCat("remove ", path));
}

absl::StatusOr<bool> IsTmpfs(const std::string& path) {
  struct statfs info;
  if (::statfs(path.c_str(), &info) != 0) {
    return Failed("look at the file system of", path);
  }
  return info.f_type == TMPFS_MAGIC || info.f_type == RAMFS_MAGIC;
}

absl::StatusOr<FileLock> FileLock::Acquire(const std::string& directory,
                                           absl::string_view program) {
  const std::string path = absl::StrCat(directory, "/LOCK");
  COHORT_ASSIGN_OR_RETURN(const UniqueFd at, OpenOwnDirectory(directory));
  COHORT_ASSIGN_OR_RETURN(
      UniqueFd fd, OpenLocked(at.get(), directory, O_RDWR | O_CREAT, LOCK_EX));
  if (::ftruncate(fd.get(), 0) != 0) return Failed("truncate", path);
  const absl::Status written =
      WriteAll(fd.get(), path, absl::StrCat(::getpid(), " ", program, "\n"));
  // Who waits for it then does not know whom it waits for.
  if (!written.ok() && !absl::IsResourceExhausted(written)) return written;
  return FileLock(std::move(fd));
}

absl::StatusOr<std::optional<FileLock>> FileLock::Share(
    const std::string& directory) {
  const UniqueFd at(
      ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!at && errno == ENOENT) return std::optional<FileLock>();
  if (!at) return Failed("open", directory);
  absl::StatusOr<UniqueFd> fd =
      OpenLocked(at.get(), directory, O_RDONLY, LOCK_SH);
  if (absl::IsNotFound(fd.status())) return std::optional<FileLock>();
  COHORT_RETURN_IF_ERROR(fd.status());
  return std::optional<FileLock>(FileLock(*std::move(fd)));
}

}  // namespace cohort
