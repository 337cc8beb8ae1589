#pragma once

#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "worker/options.h"

namespace cohort::worker {

// The worker daemon: builds everything in order and stops it in reverse.
//
// Thread-safe; lives on main's stack.
class Worker {
 public:
  // Told at most once, on a thread of the worker's, that it cannot go on.
  using Fatal = absl::AnyInvocable<void(const absl::Status&)>;

  // Opens the state directory, takes up what an earlier daemon left, and begins
  // to join.  InvalidArgument: the options or a file that they name;
  // FailedPrecondition: another daemon has the state directory, or the node id
  // from a copy of it, or ranks of this node run over such a copy (each is
  // named); DataLoss: a file of it is damaged.
  static absl::StatusOr<std::unique_ptr<Worker>> Start(WorkerOptions options,
                                                       Fatal on_fatal);
  ~Worker();

  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Has the head drain this node with that deadline, and blocks until nothing
  // is left here, the deadline has passed, or Hurry is called.
  void Drain(absl::Duration deadline);
  // Ends the daemon: ranks stay, or with `end_ranks` go first.  Blocks.
  void Shutdown();
  // Ends a Drain, and lets a Shutdown that goes on, or comes, kill the ranks at
  // once.
  void Hurry();

 private:
  class Parts;

  explicit Worker(std::unique_ptr<Parts> parts);

  const std::unique_ptr<Parts> parts_;
};

}  // namespace cohort::worker
