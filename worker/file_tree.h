#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/unique_fd.h"
#include "worker/run_as.h"

// Trees of files that jobs leave, as WorkDirectories looks at and moves them.
namespace cohort::worker {

struct FoundFile {
  std::string path;  // below where it was looked for
  struct stat info = {};
};

// Files and links below `root`, at most a million and in at most 256 levels of
// directories, so that time, memory and descriptors for it have a bound.  What
// Python compiles beside its sources is nobody's work.
absl::StatusOr<std::vector<FoundFile>> FilesBelow(const std::string& root);

// Of all files and links below `root`.  What cannot be looked at counts
// nothing.
int64_t BytesBelow(const std::string& root);

// Where the link `root`/`path` leads to, relatively if that is below `root`: so
// it stays right when the tree is moved or fetched.
std::string LinkTarget(const std::string& root, const std::string& path);

// From one file system to another where it has to be; replaces what is there.
absl::Status MoveFile(const std::string& from_root, const std::string& to_root,
                      const std::string& path);

// Below it, and through no link that leads elsewhere.
absl::StatusOr<UniqueFd> OpenBelow(const std::string& root,
                                   const std::string& path,
                                   const std::optional<OsAccount>& owner);

// All below `root`, but not itself: until that is given, too, nobody else gets
// there.  Shared programs stay as they are for all.
absl::Status GiveBelow(const OsAccount& account, const std::string& root);

}  // namespace cohort::worker
