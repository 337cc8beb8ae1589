#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/file.h"
#include "common/strong_id.h"

namespace cohort::worker {

// The tmpfs directory of a node on this machine, with its sockets and segments:
// made where it is missing, and locked for as long as this lives.
//
// Copies of a state directory have one node id, so they share it: whoever has
// the lock is the node's daemon on this machine, and only it may touch what
// lies here or end what runs.
//
// RD-1: without the lock nothing here is made, changed or removed.
//
// Thread-compatible.
class RuntimeDirectory {
 public:
  // Short, because unix sockets live below it.
  static std::string PathOf(const NodeId& node);
  // Whether `path` is what PathOf gives for some node.
  static bool IsOfANode(absl::string_view path);

  // FailedPrecondition, naming the other process and what to do, when another
  // daemon has it; other errors as MakeDirectories and FileLock::Acquire.
  static absl::StatusOr<std::unique_ptr<RuntimeDirectory>> Take(
      const std::string& path);
  // The directory goes when nothing but the lock is left in it.
  ~RuntimeDirectory();

  RuntimeDirectory(const RuntimeDirectory&) = delete;
  RuntimeDirectory& operator=(const RuntimeDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  RuntimeDirectory(std::string path, FileLock lock);

  const std::string path_;
  const FileLock lock_;
};

}  // namespace cohort::worker
