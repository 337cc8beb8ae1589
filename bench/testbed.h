#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "client/cluster.h"

namespace cohort::bench {

// A child process, in a session of its own, that dies with this one.  Killed
// and reaped at the end. Thread-compatible; made and destroyed on one thread,
// since the death signal is that thread's.
class Child {
 public:
  // Starts argv with `environment` (K=V) added to this one's; stdout goes to
  // `output`, stderr too.  The errors of fork and open.
  static absl::StatusOr<std::unique_ptr<Child>> Start(
      std::vector<std::string> argv, const std::string& output,
      const std::vector<std::string>& environment = {});
  ~Child();

  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void Signal(int signal) const;
  // Blocks; OK when it exited with 0, else Internal with its last words.
  absl::Status Wait();
  // 0 once it was reaped.
  pid_t pid() const { return pid_; }
  // Whether it has ended; reaps it.
  bool Ended();

 private:
  Child(pid_t pid, std::string program, std::string output)
      : pid_(pid), program_(std::move(program)), output_(std::move(output)) {}

  pid_t pid_;  // 0: reaped
  const std::string program_;
  const std::string output_;
  int wait_status_ = 0;
};

// A real head, and a worker when asked for, as child processes with their state
// in a directory of this bench under /var/tmp, which goes at the end.
// Thread-compatible.
class Testbed {
 public:
  // FailedPrecondition when /var/tmp is a tmpfs: durability is what is
  // measured.
  static absl::StatusOr<std::unique_ptr<Testbed>> Create();
  ~Testbed();

  Testbed(const Testbed&) = delete;
  Testbed& operator=(const Testbed&) = delete;

  // Returns when the head serves; a second start takes the port of the first.
  absl::Status StartHead(const std::vector<std::string>& flags = {});
  // As kill -9.
  void KillHead();
  // Returns when it has joined.
  absl::Status StartWorker(int num_cpus);

  absl::StatusOr<std::unique_ptr<Cluster>> Connect() const;

  const std::string& directory() const { return directory_; }
  const std::string& address() const { return address_; }
  // Bytes in the write-ahead log of the head's store, before it is rolled over.
  int64_t HeadLogBytes() const;

 private:
  explicit Testbed(std::string directory) : directory_(std::move(directory)) {}

  const std::string directory_;
  std::string address_;  // empty before the first start
  std::unique_ptr<Child> head_;
  std::unique_ptr<Child> worker_;
};

// Blocks until `path` exists.  DeadlineExceeded after a minute; Internal when
// `writer` ends first.
absl::Status AwaitFile(const std::string& path, Child& writer);

// A TCP port of loopback that was free a moment ago.
absl::StatusOr<int> FreePort();

// The directory of the programs: that of this one.
std::string ProgramDirectory();

}  // namespace cohort::bench
