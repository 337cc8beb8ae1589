#pragma once

#include <cstdint>
#include <vector>

#include "common/job_id.h"
#include "head/explain/remedy.h"
#include "head/placement/gang_request.h"
#include "head/placement/placement_index.h"
#include "head/state/attempt_table.h"
#include "head/state/node_table.h"
#include "head/state/waiting_line.h"
#include "head/store/records.h"

// Who of those ahead in line takes what a request needs.
namespace cohort::head {

// Whether another request may take what one needs: the same resource of the
// same node, were that idle.  Thread-compatible; `nodes` and `request` outlive
// it and do not change.
class Competition {
 public:
  Competition(const PlacementIndex& nodes, const GangRequest& request);

  bool With(const GangRequest& other);

 private:
  bool Meets(const NodeForm& form, const NodesById& alike,
             const GangRequest& other);

  const PlacementIndex& nodes_;
  const GangRequest& request_;
  // Nodes and sets of nodes that may still be looked at: 10 ms.  Past it, who
  // asks for the same resource counts.
  int64_t looks_left_ = 100'000;
  bool suits_any_ = false;
};

// Whether a change of the cluster lets a job start in spite of the line.
struct Overtaking {
  // Ahead of it: they would take the room first.  With all of them held it
  // starts; with none of them left out it does not.
  std::vector<JobId> first;
  bool known = true;  // false: it was not found out within the limits
};

//   EX-4: with those held that it names, and after the change, the job starts.
//         Of nodes that are not here yet their ids are a guess: they decide
//         between nodes that do equally well.
//
// What happens in line once `remedy`, which is of the cluster and enough for
// the request by itself, is made.  `job` waits with `request`, or would.
Overtaking WhoTakesIt(const NodeTable& nodes, const AttemptTable& attempts,
                      const WaitingLine& line, const JobRecord& job,
                      const GangRequest& request, const Remedy& remedy);

}  // namespace cohort::head
