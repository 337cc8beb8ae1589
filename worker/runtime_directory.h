#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

#include "common/file.h"
#include "common/strong_id.h"

namespace cohort::worker {

// The tmpfs directory of a node on this machine, with its sockets and segments:
// made where it is missing, and locked for as long as this lives.
//
// Copies of a state directory have one node id, so they share it: the one that
// has the lock is the node's daemon on this machine, and only it may touch what
// lies here or end what runs.
//
// RD-1: without the lock nothing here is made, changed or removed.
//
// Thread-compatible.
class RuntimeDirectory {
 public:
  // Short, because unix sockets live below it.
  static std::string PathOf(const NodeId& node);

  // FailedPrecondition, naming the other process and what to do, when another
  // daemon has it; other errors as MakeDirectories and FileLock::Acquire.
  // `mode`: who else may go through it.
  static absl::StatusOr<std::unique_ptr<RuntimeDirectory>> Take(
      const std::string& path, mode_t mode = 0700);
  // The directory goes when nothing but the lock is left in it.
  ~RuntimeDirectory();

  RuntimeDirectory(const RuntimeDirectory&) = delete;
  RuntimeDirectory& operator=(const RuntimeDirectory&) = delete;

  const std::string& path() const { return path_; }

  // Makes and locks it again where somebody has removed it or its lock; whether
  // that was so.  Errors as Take.  What ranks that run had in it is lost: they
  // go on, for what they have open stays, and so does their keepers'
  // connection. A later daemon has no way to those but signals and their
  // records, and sees no metrics of them.
  absl::StatusOr<bool> Renew();

 private:
  // The lock's file: who has a file of that name may not have this one.
  using Identity = std::pair<dev_t, ino_t>;

  RuntimeDirectory(std::string path, mode_t mode, FileLock lock);

  // Of the file that is there; zeros when there is none.
  Identity LockThere() const;

  const std::string path_;
  const mode_t mode_;
  FileLock lock_;
  Identity lock_file_;
};

}  // namespace cohort::worker
