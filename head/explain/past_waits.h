#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

#include "head/explain/wait_history.h"
#include "head/state/cluster_state.h"
#include "head/store/records.h"

namespace cohort::head {

// What kept a job, for a time.
struct PastWait {
  // "resources", "held" and so on as LowerEnumText has it; "unknown" of a time
  // of which it is not remembered whether it waited at all.
  std::string kind;
  std::string text;
  absl::Time since;
  absl::Time until;  // InfiniteFuture: it still does
  // Of resources: the reason of that time, where it is remembered.
  std::optional<WaitReasonRecord> room;

  bool Holds(absl::Time at) const { return since <= at && at < until; }
};

//   EX-5: told is what kept this job: of the want of room only while it stood
//         in line for it, whoever else asked for the same.
//
// From its submission on, by when it began.  Takes time linear in what is
// remembered of it and of its shape.
std::vector<PastWait> PastWaits(const ClusterState& state,
                                const WaitHistory& history,
                                const JobRecord& job);

}  // namespace cohort::head
