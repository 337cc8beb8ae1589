#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "common/clock.h"
#include "common/strong_id.h"
#include "head/state/deadline_queue.h"
#include "head/store/records.h"

namespace cohort::head {

// What a person asks for with a drain.
struct DrainOrder {
  std::string reason;
  // How long what runs there may go on.
  absl::Duration deadline = absl::InfiniteDuration();
};

// InvalidArgument, naming what, when it cannot be.
absl::Status ValidateDrainOrder(const DrainOrder& order);

// When what still runs on a drained node is moved.
//
//   DR-2: a deadline is counted on the monotonic clock.  A head that starts
//         goes on with what the record's wall times leave of it, never with
//         more than was asked for, however the clock was set meanwhile.
//
// The rest is taken from wall time, not begun anew as leases are, because a
// deadline is a promise to whoever switches the machine off.  Thread-
// compatible; belongs to ClusterState.
class DrainDeadlines {
 public:
  explicit DrainDeadlines(const Clock& clock) : clock_(clock) {}

  // From now; replaces an earlier one.  InfiniteDuration: none.
  void Set(const NodeId& node, absl::Duration deadline);
  // For a drain that was stored by an earlier head.
  void Resume(const NodeId& node, const Drain& drain);
  void Clear(const NodeId& node);

  // The nodes whose deadlines have come, each once, in that order.
  std::vector<NodeId> TakeDue();
  // Whether TakeDue gave it: nothing may begin or go on there.
  bool HasPassed(const NodeId& node) const { return passed_.contains(node); }

 private:
  const Clock& clock_;
  DeadlineQueue<NodeId> due_;  // on the monotonic clock
  std::set<NodeId> passed_;
};

}  // namespace cohort::head
