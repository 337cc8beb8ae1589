#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

#include "common/clock.h"
#include "head/autoscaler/scale_plan.h"
#include "head/state/cluster_state.h"
#include "head/store/records.h"

namespace cohort::head {

// A plan from when its input is taken from the state until it is carried out.
// The state goes on meanwhile, so that what is carried out is looked at again:
// a launch counts if its ask still waits and there may be one more (SC-2), with
// all that its ask needs beside it, an end if the node is as it was, nothing
// that came since could use it (SC-5), and there are enough of its type.
//
// Its owner hands it to another thread for Make, and has it again afterwards.
class ScaleDraft {
 public:
  // REQUIRES: the state has a cluster file.
  explicit ScaleDraft(const ClusterState& state);

  ScaleDraft(const ScaleDraft&) = delete;
  ScaleDraft& operator=(const ScaleDraft&) = delete;

  // As it was; the types of `input` are its own.
  const ClusterFile& file() const { return file_; }
  ScaleInput input;

  // Makes the plan, and forgets the input.
  void Make(const Clock& clock);
  const ScalePlan& plan() const { return plan_; }
  absl::Duration took() const { return took_; }

  // Whether people want the same as when it was begun.
  bool IsWanted(const ClusterState& state) const;
  // Carries out the next part, of at most kStepsMax launches and ends: some
  // milliseconds.  Whether that was the last one.
  bool Carry(ClusterState& state, Transition& transition);

 private:
  static constexpr size_t kStepsMax = 64;

  // The first launch that is of another ask.
  size_t EndOfAsk(size_t first) const;
  size_t CarryLaunches(ClusterState& state, Transition& transition);
  void CarryEnds(size_t steps, ClusterState& state, Transition& transition);

  const ClusterFile file_;
  const uint64_t wants_;
  const uint64_t nodes_;     // the index's version
  const uint64_t arrivals_;  // of the line
  ScalePlan plan_;
  absl::Duration took_;
  size_t launched_ = 0;
  size_t whole_until_ = 0;  // launches below it are of asks that were looked at
  size_t ended_ = 0;
};

}  // namespace cohort::head
