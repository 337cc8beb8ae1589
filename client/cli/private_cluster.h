#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace cohort::cli {

// A head and a worker on this machine for one command, with all that the
// machine has to offer and the environment of this process, in a temporary
// directory and on ports that the system chooses.
//
// A process of their own runs them.
//
// RN-1: it ends them and removes the directory with this object, and also when
//       this process dies.
class PrivateCluster {
 public:
  // REQUIRES: this process has one thread.  Unavailable, with the last words of
  // what would not start.
  static absl::StatusOr<std::unique_ptr<PrivateCluster>> Start();
  ~PrivateCluster();

  PrivateCluster(const PrivateCluster&) = delete;
  PrivateCluster& operator=(const PrivateCluster&) = delete;

  const std::string& address() const { return address_; }
  std::string CredentialFile() const { return directory_ + "/credential"; }

 private:
  PrivateCluster(pid_t process, std::string directory)
      : process_(process), directory_(std::move(directory)) {}

  const pid_t process_;
  const std::string directory_;
  std::string address_;
};

}  // namespace cohort::cli
