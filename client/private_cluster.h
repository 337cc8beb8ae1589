#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"

namespace cohort::client {

// A head and a worker on this machine for one program, with all that the
// machine has to offer and the environment of this process, in a temporary
// directory and on ports that the system chooses.
//
// The `cohort` command runs them, as a process of this one (its
// private_server.h).
//
// RN-1: it ends them and removes the directory with this object, and also when
//       this process, or the thread that started it, dies.
class PrivateCluster {
 public:
  // What jobs write to COHORT_STORAGE_DIR is in `results` when this has ended,
  // an absolute path that is made when there is any; empty: it goes with it.
  //
  // Looks for `cohort` beside this program, then on PATH.  NotFound when it is
  // at neither; Unavailable, with the last words of what would not start.  Who
  // kills that process ends this one too: calls would go on to wait for a head
  // that may come back.
  static absl::StatusOr<std::unique_ptr<PrivateCluster>> Start(
      const std::string& results = "");
  // ./cohort-results, for `results`; empty when there is no such place.
  static std::string ResultsHere();
  ~PrivateCluster();

  PrivateCluster(const PrivateCluster&) = delete;
  PrivateCluster& operator=(const PrivateCluster&) = delete;

  const std::string& address() const { return address_; }
  std::string CredentialFile() const {
    return small_directory_ + "/credential";
  }

 private:
  void Watch() const;

  PrivateCluster(pid_t process, std::string large_directory,
                 std::string small_directory)
      : process_(process),
        large_directory_(std::move(large_directory)),
        small_directory_(std::move(small_directory)) {}

  const pid_t process_;
  const std::string large_directory_;
  const std::string small_directory_;
  std::string address_;
  std::atomic<bool> ending_ = false;
  std::thread watch_;
};

// How that process tells what became of it, on the descriptor kToldFd: this
// byte, then the address, or what went wrong.
inline constexpr int kPrivateToldFd = 3;
inline constexpr char kPrivateServes = '+';
inline constexpr char kPrivateFailed = '-';
// `cohort` becomes it, with this first argument, the two directories, that for
// what is large and that for the rest, which it removes, the pid with which it
// ends, and perhaps where results are kept.
inline constexpr char kPrivateCommand[] = "__private-cluster";

}  // namespace cohort::client
