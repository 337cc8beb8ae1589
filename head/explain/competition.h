#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "common/job_id.h"
#include "head/explain/contenders.h"
#include "head/explain/remedy.h"
#include "head/placement/gang_request.h"
#include "head/placement/placement_index.h"
#include "head/state/attempt_table.h"
#include "head/state/node_table.h"

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

// A change of the cluster that lets a job start, and the line.
struct Overtaking {
  // They would take the room; each is a job, or an array of which all that
  // waits is meant.  With all of them held the job starts.
  std::vector<JobId> first;
  bool helps = true;  // false: it does not start, whoever is held
  bool known = true;  // false: it was not found out within the limits
};

// A change of the cluster, made for a job.
struct ChangeForJob {
  const Remedy& remedy;
  const GangRequest& request;
  // The end of these lets it into the line.
  std::vector<JobId> after;
  // It is besides kept from the line, by a hold for one, and let into it before
  // or after, or between two of the steps in which the room is made.
  bool let_in = false;
};

// The jobs that end, and how many steps there are: ends on each node, nodes
// that come or open, and that it is let in.
std::set<JobId> EndsOf(const ChangeForJob& change,
                       const AttemptTable& attempts);
size_t StepsOf(const ChangeForJob& change, const AttemptTable& attempts);

//   EX-4: with those held that it names, and after the change, the job starts.
//         Of no more than three steps, in whatever order they come, and with
//         none of those left out.  More are tried as if they came at once, and
//         the job were let in before or after them; then those are named too
//         that might be in the way in between and ask for something else.
//         Of nodes that are not here yet their ids are a guess: they decide
//         between nodes that do equally well.
//
// What happens in line when the change is made.
Overtaking WhoTakesIt(const NodeTable& nodes, const AttemptTable& attempts,
                      const Contenders& contenders, const ChangeForJob& change);

}  // namespace cohort::head
