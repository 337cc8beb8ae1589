#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "rpc/credential.h"

// The clusters that a user has logged in to, of which at most one is in use:
// commands and programs that name none mean it (connection.h).
//
// Each is a directory of its name, mode 0700, with the two files that
// UpDirectory has, below COHORT_CONFIG_DIR, else `clusters` beside UpDirectory.
// Functions block on the file system; of two commands at once the last one
// counts.
namespace cohort::client {

struct SavedCluster {
  std::string name;
  std::string address;
  bool in_use = false;
};

// In the order of their names.
absl::StatusOr<std::vector<SavedCluster>> SavedClusters();

// Saves one, in place of what has its name, and uses it.  InvalidArgument: the
// name is none: letters, digits, `-`, `_` and `.`, at most 64, `.` not first.
absl::Status SaveCluster(const std::string& name, const std::string& address,
                         const rpc::Credential& credential);

// NotFound, naming those that are there.
absl::Status UseCluster(const std::string& name);
absl::Status ForgetCluster(const std::string& name);

// The directory of the one in use; empty: there is none.
absl::StatusOr<std::string> DirectoryInUse();

}  // namespace cohort::client
