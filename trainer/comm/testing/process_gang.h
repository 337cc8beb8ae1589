#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/unique_fd.h"
#include "shm/arena.h"
#include "trainer/comm/comm.h"

namespace cohort::trainer {

// A gang whose ranks are child processes of a test or a bench, so that they can
// be killed and stopped, and use CUDA, which a process that has used it cannot
// hand to its children: the process that starts a gang must not have.
//
// The starter is what a worker daemon is to real ranks: it makes the arena,
// sees deaths, revokes.  It starts gangs while it has one thread.
// Thread-compatible.  The end of either side ends the ranks.
class ProcessGang {
 public:
  static constexpr uint64_t kEpoch = 1;

  // A rank's, in its process.
  struct Place {
    Comm& control;  // shared memory
    Exchange exchange;
    // A line for Hear.
    std::function<void(absl::string_view)> tell;
  };
  // What a rank does, and how it ends.
  using Body = std::function<absl::Status(Place&)>;

  // Starts `world` processes that run `body`.  Errors of shm::Arena::Create,
  // and RESOURCE_EXHAUSTED when there is no process to be had.
  static absl::StatusOr<std::unique_ptr<ProcessGang>> Start(int world,
                                                            const Body& body);
  // Kills what still runs, and removes the arena.
  ~ProcessGang();
  ProcessGang(const ProcessGang&) = delete;
  ProcessGang& operator=(const ProcessGang&) = delete;

  pid_t pid(int rank) const { return ranks_[rank].pid; }

  // The next line that `rank` told.  UNAVAILABLE when it has ended instead,
  // DEADLINE_EXCEEDED when nothing comes.
  absl::StatusOr<std::string> Hear(int rank,
                                   absl::Duration deadline = absl::Minutes(2));

  // SIGKILL or SIGSTOP; returns when the process is dead or stopped.
  void Kill(int rank);
  void Stop(int rank);

  // As the daemon of the ranks' node does.
  void Revoke() { arena_->Revoke(kEpoch); }

  // What the rank's body answered; ABORTED when the process ended otherwise,
  // DEADLINE_EXCEEDED, and it is killed, when it does not end.  What it told
  // and nobody heard is lost.
  absl::Status End(int rank, absl::Duration deadline = absl::Minutes(2));
  // Of all: the first error by rank.
  absl::Status EndAll(absl::Duration deadline = absl::Minutes(2));

 private:
  struct Rank {
    pid_t pid = 0;
    UniqueFd lines;     // what it tells
    std::string heard;  // of `lines`, not given out yet
    int wait_status = 0;
    bool is_reaped = false;
  };

  explicit ProcessGang(std::string directory);

  absl::Status StartRank(const Body& body);
  [[noreturn]] void BeRank(int rank, const Body& body, UniqueFd lines);
  absl::StatusOr<std::string> NextLine(int rank, absl::Duration deadline);
  void Reap(int rank);

  const std::string directory_;
  std::unique_ptr<shm::Arena> arena_;
  std::vector<Rank> ranks_;
};

}  // namespace cohort::trainer
