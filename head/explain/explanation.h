#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/time.h"

#include "cohort/v1/cluster.pb.h"
#include "common/clock.h"
#include "common/job_id.h"
#include "head/explain/diagnosis.h"
#include "head/explain/node_trial.h"
#include "head/explain/wait_history.h"
#include "head/placement/gang_request.h"
#include "head/state/cluster_state.h"
#include "head/store/records.h"
#include "head/store/transition.h"

// Why a job waits, and what would let it start; of one that does not wait, what
// became of it.
namespace cohort::head {

// The time that is meant.
struct ExplainWhen {
  std::optional<absl::Time> at;  // nothing: now
  bool history = false;          // all that is remembered beside it
};

// Explains jobs, and notes down while they wait why they do.
//
// Strand-bound; HeadCore owns one beside each life of the state, made of its
// rows.
class Explainer {
 public:
  Explainer(HistoryCaps caps, const Clock& clock,
            std::vector<WaitReasonRecord> rows)
      : waits_({}, caps, clock, std::move(rows)) {}

  // Notes down why what waits does: a little of it each tick.
  void Look(const ClusterState& state, Transition& transition) {
    waits_.Look(state.line(), state.nodes(), state.attempts(), transition);
  }
  HistoryLevel Level() const { return waits_.Level(); }

  // `read_only`: the head's store refuses writes.  With the limits of what it
  // calls it takes some tens of milliseconds, however many jobs wait.
  v1::ExplainJobResponse Explain(const ClusterState& state,
                                 const JobRecord& job, bool read_only,
                                 const ExplainWhen& when = {});
  // Of an array: what its elements wait for, and the rest of the first that
  // waits for room, or for what comes before that.  REQUIRES: it is here.
  v1::ExplainJobResponse ExplainArray(const ClusterState& state,
                                      const JobId& array, bool read_only,
                                      const ExplainWhen& when = {});

 private:
  static constexpr size_t kDiagnosesMax = 64;
  struct Diagnosed {
    uint64_t version = 0;  // of the nodes
    Diagnosis diagnosis;
  };

  // Costs nothing while nothing has changed.  Valid until the next call.
  const Diagnosis& DiagnosisOf(const ClusterState& state,
                               const GangRequest& request, NodeTrial& trial);

  WaitHistory waits_;
  std::map<GangRequest, Diagnosed> diagnoses_;
};

}  // namespace cohort::head
