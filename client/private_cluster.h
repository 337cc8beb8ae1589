#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
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
  // what would not start.  Who kills that process ends this one too: calls
  // would go on to wait for a head that may come back.
  static absl::StatusOr<std::unique_ptr<PrivateCluster>> Start();
  ~PrivateCluster();

  PrivateCluster(const PrivateCluster&) = delete;
  PrivateCluster& operator=(const PrivateCluster&) = delete;

  const std::string& address() const { return address_; }
  std::string CredentialFile() const { return directory_ + "/credential"; }

 private:
  void Watch() const;

  PrivateCluster(pid_t process, std::string directory,
                 std::string head_directory)
      : process_(process),
        directory_(std::move(directory)),
        head_directory_(std::move(head_directory)) {}

  const pid_t process_;
  const std::string directory_;
  const std::string head_directory_;
  std::string address_;
  std::atomic<bool> ending_ = false;
  std::thread watch_;
};

}  // namespace cohort::cli
