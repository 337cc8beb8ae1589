#pragma once

#include <cstddef>
#include <memory>

#include "absl/time/time.h"

#include "common/executor.h"

namespace cohort::rpc {

// Tasks before a strand that may wait a moment: what comes within it runs in
// one go, so that thousands of small messages a second do not wake a thread
// each.
//
//   PT-1: tasks run in the order of posting, each at most `delay` after it was
//         posted (and what the strand does then).
//   PT-2: what else was posted to the strand has its turn between two bursts of
//         at most kBurst tasks.
//
// Thread-safe.  Tasks may outlive the line, not the strand; a strand that has
// stopped destroys them unrun.
class BatchLine {
 public:
  static constexpr size_t kBurst = 64;

  BatchLine(Executor& strand, absl::Duration delay);

  void Post(Task task);

 private:
  class Waiting;
  class Burst;

  const absl::Duration delay_;
  // Shared: this and the burst that waits on the strand.
  const std::shared_ptr<Waiting> waiting_;
};

}  // namespace cohort::rpc
