#pragma once

#include <optional>
#include <set>
#include <vector>

#include "common/job_id.h"
#include "head/explain/node_trial.h"
#include "head/placement/gang_request.h"
#include "head/state/cluster_state.h"
#include "head/store/records.h"

namespace cohort::head {

// Whether a job would start after a change of the cluster, in spite of the
// line: those before it are placed first, as the head places them.
//
//   EX-4: a change that is told lets the job start when it is made at once.
//
// Thread-compatible; `state` and `job` outlive it and do not change.
class LineTrial {
 public:
  LineTrial(const ClusterState& state, const JobRecord& job);

  // Whether the job starts once nodes are as `changed` says and jobs `ended`
  // have ended; nothing: it was not found out within the limits.
  std::optional<bool> Starts(const std::vector<NodeSnapshot>& changed,
                             const std::set<JobId>& ended);

  // Whether nobody else who waits could start on any of these nodes: then the
  // job does in whatever order they come.  Nothing: as above.
  std::optional<bool> HasNoRival(const std::vector<NodeSnapshot>& changed);

  // The nodes that an attempt of `job` is on, as they are without it; those
  // that take new work.
  std::vector<NodeSnapshot> NodesWithout(const JobId& job) const;

 private:
  struct Contender {
    WaitingLine::Place place;
    GangRequest request;
    bool is_last = false;  // of those that were looked at, with more behind it
  };

  // Those that come into the line by these ends, before the job.
  void AddReleased(const std::set<JobId>& ended,
                   std::vector<Contender>& contenders) const;
  // Made when it is needed.
  NodeTrial& Nodes();
  // Whether there is room for the job once these are placed, in order.
  std::optional<bool> Walk(const std::vector<Contender>& contenders);

  const ClusterState& state_;
  const JobRecord& job_;
  std::vector<Contender> ahead_;
  std::optional<NodeTrial> nodes_;
};

}  // namespace cohort::head
