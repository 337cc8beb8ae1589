#include "worker/runtime_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "common/log.h"
#include "common/node_runtime_path.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::worker {
namespace {

absl::Status HasAnother(const absl::Status& why) {
  if (GetReason(why) != "locked") return why;
  return SetReason(
      absl::FailedPreconditionError(absl::StrCat(
          "another daemon on this machine has this node's id, from a copy of "
          "this --state-dir: if this one is the copy, remove node_id from it "
          "and start again; else stop the other one (",
          why.message(), ")")),
      "duplicate_node");
}

absl::StatusOr<FileLock> Lock(const std::string& path, mode_t mode) {
  // It goes with each holder that leaves nothing in it.
  constexpr int kTriesMax = 100;
  absl::Status gone;
  for (int i = 0; i < kTriesMax; ++i) {
    COHORT_RETURN_IF_ERROR(MakeDirectories(path, 0700));
    absl::StatusOr<FileLock> lock = FileLock::Acquire(path, "cohort-worker");
    if (lock.ok() && chmod(path.c_str(), mode) != 0) {
      return ErrnoStatus(errno, absl::StrCat("change the mode of ", path));
    }
    if (!absl::IsNotFound(lock.status())) return lock;
    gone = lock.status();
  }
  return gone;
}

}  // namespace

std::string RuntimeDirectory::PathOf(const NodeId& node) {
  return NodeRuntimePath(node.ToHex());
}

absl::StatusOr<std::unique_ptr<RuntimeDirectory>> RuntimeDirectory::Take(
    const std::string& path, mode_t mode) {
  absl::StatusOr<FileLock> lock = Lock(path, mode);
  if (!lock.ok()) return HasAnother(lock.status());
  return absl::WrapUnique(new RuntimeDirectory(path, mode, *std::move(lock)));
}

RuntimeDirectory::RuntimeDirectory(std::string path, mode_t mode, FileLock lock)
    : path_(std::move(path)),
      mode_(mode),
      lock_(std::move(lock)),
      lock_file_(LockThere()) {}

RuntimeDirectory::Identity RuntimeDirectory::LockThere() const {
  struct stat there;
  if (stat(absl::StrCat(path_, "/LOCK").c_str(), &there) != 0) return {};
  return {there.st_dev, there.st_ino};
}

absl::StatusOr<bool> RuntimeDirectory::Renew() {
  if (LockThere() == lock_file_) return false;
  absl::StatusOr<FileLock> lock = Lock(path_, mode_);
  if (!lock.ok()) return HasAnother(lock.status());
  lock_ = *std::move(lock);
  lock_file_ = LockThere();
  COHORT_LOG(kError, "runtime_directory_made_again", {"directory", path_},
             {"lost",
              "control sockets and segments of ranks that run: they go on with "
              "what they have open"});
  return true;
}

RuntimeDirectory::~RuntimeDirectory() {
  if (LockThere() != lock_file_) return;
  // While we have it: nobody else begins before.
  unlink(absl::StrCat(path_, "/LOCK").c_str());
  rmdir(path_.c_str());
}

}  // namespace cohort::worker
