#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "common/random.h"
#include "common/resources.h"
#include "common/strong_id.h"
#include "head/placement/placement.h"
#include "head/state/desired.h"
#include "head/state/node_table.h"

namespace cohort::bench {

// The nodes of these benches: 8 GPUs, 96 CPUs and 1 TiB each, 16 to a rack.
head::NodeRecord GpuNode(const NodeId& id, int number);

// Whole-GPU gangs as clusters for training see them: of 20 gangs 8 have one
// member, 2 two, 3 four, 4 eight, 2 sixteen and 1 sixty-four; each member has a
// GPU, 8 CPUs and 64 GiB.
head::GangRequest NextGang(Random& random);

// What a plan holds: which processes on which nodes.
using Held = std::vector<std::pair<NodeId, head::Incarnation>>;

// The plan's processes hold `each` of their nodes.
Held Hold(head::NodeTable& nodes, const AttemptId& attempt,
          const ResourceSet& each, const head::Plan& plan);
void Release(head::NodeTable& nodes, const AttemptId& attempt,
             const Held& held);

// The planner and its index by themselves, without jobs, rows or messages.
// Thread-compatible.
class PlannerLoad {
 public:
  PlannerLoad(int nodes, uint64_t seed);

  // Places gangs until `share` of the GPUs are held.
  void FillTo(double share);
  // Places `gangs` more; ends random ones first where there is no room, so that
  // the cluster stays as full as it is.  The members placed.
  int64_t Churn(int gangs);

  const head::NodeTable& nodes() const { return nodes_; }
  // What was placed last, for the floor.
  const std::vector<head::Plan>& plans() const { return plans_; }
  void RememberPlans() { remembers_ = true; }

 private:
  // The members placed; 0: no room.
  int64_t Place(const head::GangRequest& request);
  void EndOne();

  SeededRandom random_;
  const int nodes_count_;
  head::NodeTable nodes_;
  struct Running {
    AttemptId attempt;
    Held held;
    int64_t members = 0;
  };
  std::vector<Running> running_;
  int64_t held_ = 0;
  bool remembers_ = false;
  std::vector<head::Plan> plans_;
};

}  // namespace cohort::bench
