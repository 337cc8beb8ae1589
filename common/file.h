#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/unique_fd.h"

// Files, with the care that state on disk needs.  Errors name the path; their
// code comes from errno unless said.  All of it blocks.
namespace cohort {

// Where the name `path` stands: "a" for "a/b" and "a/b/", "." for "b", "/" for
// "/" and "/b".  Looks at the text only.
std::string ParentDirectory(const std::string& path);

// The same path without empty parts and ".": "/a/b" for "/a//./b/".  ".."
// stays, since what stands before it may be a link.  Looks at the text only.
std::string CleanPath(const std::string& path);

// The whole file.  FailedPrecondition when it holds more than `bytes_max`.
absl::StatusOr<std::string> ReadFile(const std::string& path,
                                     size_t bytes_max = size_t{64} << 20);

// The same of a file in a place where others may have put anything: it never
// waits.  InvalidArgument for what is no file.
absl::StatusOr<std::string> ReadRegularFile(const std::string& path,
                                            size_t bytes_max);

// Makes `path` a file of `bytes` with exactly `mode`, so that a crash at any
// point leaves the old file or the new one, whole and synced once this returns.
// On an error the old file stays.
absl::Status WriteFileAtomically(const std::string& path,
                                 absl::string_view bytes, mode_t mode);

// Writes all of `bytes` to `fd`; `path` is for the error.
absl::Status WriteAll(int fd, const std::string& path, absl::string_view bytes);

// Opens the directory `path`, relative, below the one that is open as `root`,
// and makes what is missing of it with `mode` (less the umask): name by name
// and through no link, so that what somebody else has put there leads nowhere
// else. InvalidArgument for "..".
absl::StatusOr<UniqueFd> OpenDirectoryBelow(int root, absl::string_view path,
                                            mode_t mode);

// The first program `name` in the directories of `search_path`, as PATH has
// them; empty when there is none.
std::string FindProgram(absl::string_view search_path, absl::string_view name);

// Makes the names in a directory durable: after creating, renaming, removing.
absl::Status SyncDirectory(const std::string& path);

// Makes `path` and what is missing above it, with `mode` (less the umask).  OK
// when it is there already.  FailedPrecondition when something on the way is
// not a directory.
absl::Status MakeDirectories(const std::string& path, mode_t mode);

// Removes `path` and everything below it, however deep, and what of it is not
// writable; follows no links.  OK when there is nothing.
absl::Status RemoveTree(const std::string& path);

// Whether what is written under `path`, which must exist, is lost with the
// machine's memory: tmpfs or ramfs.
absl::StatusOr<bool> IsTmpfs(const std::string& path);

// The right to be the only process that uses a directory, held as long as this
// lives and no longer than the process.  Thread-compatible.
//
// Its holder, and nobody else, may remove the file, after all that it guards:
// who waited for the lock then notices, and begins again with the name.
class FileLock {
 public:
  // Locks `<directory>/LOCK` and writes "pid program" into it.
  // FailedPrecondition with reason "locked", naming the holder, when another
  // process has it; one that was killed is waited for until it is gone.
  // NotFound when the directory is not there, or went with its last holder.
  //
  // FailedPrecondition with reason "foreign_directory", naming it, when
  // somebody else could change what is there: the directory belongs to another
  // user, or lies behind a link of one, or others may write to it, or LOCK is
  // no file. An empty directory of ours is closed to others instead.
  static absl::StatusOr<FileLock> Acquire(const std::string& directory,
                                          absl::string_view program);

  // Keeps others from locking a directory while somebody only looks at it;
  // makes and writes nothing.  Nothing when there is no lock file: then nobody
  // uses it as such.  Errors as Acquire.
  static absl::StatusOr<std::optional<FileLock>> Share(
      const std::string& directory);

  FileLock(FileLock&&) = default;
  FileLock& operator=(FileLock&&) = default;

 private:
  explicit FileLock(UniqueFd fd) : fd_(std::move(fd)) {}

  // The lock goes when the descriptor does.
  UniqueFd fd_;
};

}  // namespace cohort
