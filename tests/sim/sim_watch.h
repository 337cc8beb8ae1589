#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

#include "common/strong_id.h"
#include "head/placement/placement_index.h"
#include "head/state/cluster_state.h"

// What must hold of a head from one look at it to the next.  As in
// sim_invariants.h, each check gives the first violation or nothing.
namespace cohort::sim {

// EL-1: a job that waits stands in line unless something but resources keeps
// it. `in_line` is asked for PENDING jobs.
std::string CheckLine(
    const head::ClusterState& state,
    const std::function<bool(const head::JobRecord&)>& in_line);

// PL-5, WL-1: nothing stands in line that `nodes` could hold now.
std::string CheckWoken(const head::ClusterState& state,
                       const head::PlacementIndex& nodes);

// PR-4: an epoch names one membership of an attempt that runs, and grows.
class EpochWatch {
 public:
  std::string Check(const head::ClusterState& state);

 private:
  struct Seen {
    int64_t epoch = 0;
    std::vector<uint64_t> members;
  };
  std::optional<uint64_t> life_;  // at the last look
  std::map<AttemptId, Seen> seen_;
};

// DR-1: nothing new goes to a node that is suspect, drained, not ready or
// withdrawn. PL-3: no node is offered before it registered with this head.
class NodeWatch {
 public:
  std::string Check(const head::ClusterState& state);

 private:
  std::optional<uint64_t> life_;  // at the last look
  // Nodes of this term have it or a higher one.
  uint64_t first_incarnation_ = 0;
  // A node that takes nothing, why it does not, and what it has.
  struct Closed {
    bool is_offered = false;
    std::string not_ready;
    uint64_t incarnation = 0;
    head::NodeState state = v1::NODE_STATE_ALIVE;
    head::Drain drain;
    std::set<AttemptId> attempts;
  };
  std::map<NodeId, Closed> closed_;
};

// DV-5: nobody new holds a device while it is fenced.
class DeviceWatch {
 public:
  std::string Check(const head::ClusterState& state);

 private:
  std::optional<uint64_t> life_;  // at the last look
  // Who has had what is fenced, by node and device, and since when it is.
  struct Fenced {
    absl::Time since;
    std::set<AttemptId> holders;
  };
  std::map<std::pair<NodeId, std::string>, Fenced> fenced_;
};

// DR-2: on a drained node everything is on its way out once the deadline has
// come, counted on the monotonic clock; a new head begins with what was asked
// for at most.
class DrainWatch {
 public:
  // `now` is the world's; `steady_since`: when the head last came back from
  // standing still.
  std::string Check(const head::ClusterState& state, absl::Duration now,
                    absl::Duration steady_since);

 private:
  struct Seen {
    absl::Time asked_at;
    absl::Duration due;
  };
  std::optional<uint64_t> life_;  // at the last look
  std::map<NodeId, Seen> drained_;
};

}  // namespace cohort::sim
