#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"

#include "common/executor.h"

namespace cohort::worker {

// Where attempts need to write, and how much must be free there.
struct NeededRoom {
  std::string directory;
  int64_t bytes = 0;
};

struct FitnessOptions {
  // A node that is unfit needs twice as much, lest it waver.
  std::vector<NeededRoom> rooms;
  // A full disk keeps new work off within this time, and one with room again
  // does not for longer.
  absl::Duration period = absl::Seconds(1);
};

// Whether an attempt could begin on this node, by trying to write.
//
//   FT-1: a fault that was noted counts before anything else that the strand
//         says of it, and until a later look found none.
//
// Strand-bound to the node strand; looks on `disk`.  Lives as long as Worker.
class Fitness {
 public:
  // Gets why no attempt could begin here; empty: one could.
  using Listener = absl::AnyInvocable<void(const std::string& unfit)>;

  // All outlive it and what it posted.  `on_change` is called on the strand.
  Fitness(FitnessOptions options, Executor& strand, Executor& disk,
          Listener on_change);

  // Looks once, then `looked`, then each period.
  void Start(absl::AnyInvocable<void() &&> looked);
  // An attempt could not begin, and it was the node's fault.
  void NoteFault(const absl::Status& why);

 private:
  void Look(absl::AnyInvocable<void() &&> looked);
  void Set(std::string unfit);

  const FitnessOptions options_;
  Executor& strand_;
  Executor& disk_;
  Listener on_change_;
  std::string unfit_;
  uint64_t faults_ = 0;  // noted so far
};

// ResourceExhausted, naming the directory, unless so many bytes could be
// written there; other errors as writing a file has.  Blocks.
absl::Status CheckRoom(const std::string& directory, int64_t bytes);

}  // namespace cohort::worker
