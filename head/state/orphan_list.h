#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/time/time.h"

#include "common/job_id.h"
#include "common/strong_id.h"
#include "head/state/cluster_state.h"

// How attempts from before a restore are shown to people, and those that a
// person has ended since.
namespace cohort::head {

struct ListedAttempt {
  AttemptId attempt;
  JobId job;
  // InfinitePast: not known, as of one that is ended and has a row.
  absl::Time since = absl::InfinitePast();
  std::vector<NodeId> nodes;  // of one with a row that is ended: those left
  const char* state = "";     // as StateOf
};

// At most `most`.  Of a node that is not here nothing is known, whatever it
// said before.
std::vector<ListedAttempt> ListOrphans(const ClusterState& state, size_t most);

// "n1, which is away, and n2 have not said yet that it is gone"; empty when all
// have.
std::string NotSaidGone(const AttemptRecord& attempt, const NodeTable& nodes);
// REQUIRES: IsEndedOrphan.
std::string EndedOrphanReason(const AttemptRecord& attempt,
                              const NodeTable& nodes);

// Its nodes that count as lost.
std::vector<NodeId> LostNodesOf(const AttemptRecord& attempt);

}  // namespace cohort::head
