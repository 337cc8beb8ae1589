#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "common/backoff.h"
#include "common/random.h"

namespace cohort::cli {

// One daemon that `cohort up` keeps running: its command line, its process, and
// when it may be started again.
//
// The daemon gets a process group of its own (Ctrl-C reaches `up` alone, which
// ends things in order), SIGTERM when `up` dies, and a log file for its stderr.
// Thread-compatible; made and used on one thread, since the death signal is
// that thread's.
class Supervised {
 public:
  // `name` for people: "head", "worker-0".  `random` outlives it.
  Supervised(std::string name, std::vector<std::string> command,
             std::string log_file, Random& random);

  // Starts the process.  The errors of fork; a program that cannot be executed
  // exits with 125 and says so in its log.
  absl::Status Start();

  // Takes note that its process ended with `wait_status`, at `now`: it is due
  // again after a back-off that grows while it does not live long.
  void Ended(int wait_status, absl::Duration now);

  void Signal(int signal) const;

  // A port that the system chose becomes the one to keep.
  void ReplaceArgument(const std::string& from, const std::string& to);

  // The flag's value from now on, whether it was given before or not.
  void SetFlag(const std::string& flag, const std::string& value);
  // And without it.
  void DropFlag(const std::string& flag);

  const std::string& name() const { return name_; }
  pid_t pid() const { return pid_; }  // 0: not running
  bool running() const { return pid_ != 0; }
  absl::Duration due() const { return due_; }
  // Of the last process that ended.
  int exit_code() const { return exit_code_; }
  // The end of what its last process wrote to its log, for when it would not
  // start.
  std::string LastWords() const;

 private:
  const std::string name_;
  std::vector<std::string> command_;
  const std::string log_file_;
  Backoff backoff_;
  pid_t pid_ = 0;
  absl::Duration started_;
  int64_t log_begin_ = 0;  // where the last process began to write
  absl::Duration due_;
  int exit_code_ = 0;
};

}  // namespace cohort::cli
