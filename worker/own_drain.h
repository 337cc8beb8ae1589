#pragma once

#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "cohort/v1/cluster.pb.h"
#include "common/clock.h"
#include "common/executor.h"
#include "common/random.h"
#include "common/strong_id.h"
#include "rpc/channel.h"
#include "worker/node_state.h"

namespace cohort::worker {

// How a node goes that somebody is about to take away: the head drains it, what
// runs here goes on, and it is over once nothing is left here.
//
// Strand-bound to the node strand.  Lives as long as Worker.
class OwnDrain {
 public:
  // After the deadline the head moves what still runs: so long may that take.
  static constexpr absl::Duration kMoveTime = absl::Seconds(10);

  // All outlive it and what it posted.
  OwnDrain(const NodeId& node, rpc::Channel& head, const NodeState& state,
           Executor& strand, const Clock& clock, Random& random);

  // What runs here may go on until `deadline`.  `done` once nothing is here, or
  // kMoveTime after the deadline.  REQUIRES: the first call.
  void Begin(absl::Duration deadline, absl::AnyInvocable<void() &&> done);

 private:
  // Again until the head has answered, for as long as this goes on.
  void Ask();
  void OnAnswer(const absl::StatusOr<v1::DrainNodeResponse>& answer);
  void Look();

  const NodeId node_;
  rpc::Channel& head_;
  const NodeState& state_;
  Executor& strand_;
  const Clock& clock_;
  Random& random_;
  absl::Duration until_;
  absl::AnyInvocable<void() &&> done_;
};

}  // namespace cohort::worker
