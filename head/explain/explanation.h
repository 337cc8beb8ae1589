#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

#include "common/clock.h"
#include "common/job_id.h"
#include "head/explain/diagnosis.h"
#include "head/explain/named_change.h"
#include "head/explain/past_waits.h"
#include "head/explain/wait_history.h"
#include "head/state/cluster_state.h"
#include "head/state/waiting_line.h"
#include "head/store/records.h"
#include "head/store/transition.h"

// Why a job waits, and what would let it start; of one that does not wait, what
// became of it.
namespace cohort::head {

// Elements of an array that wait for the same, each counted once.
struct WaitingElements {
  std::string kind;  // as LowerEnumText
  int64_t count = 0;
  std::optional<JobId> first;  // in the order of the array, where it is known

  friend bool operator==(const WaitingElements&,
                         const WaitingElements&) = default;
};

struct Explanation {
  JobId job;
  std::string name;
  JobState state = v1::JOB_STATE_PENDING;
  // One line: what it waits for, that it runs, why it ended.
  std::string summary;
  // Of an array: whom the rest is about, which is the first that waits for
  // room, or for what comes before that; and what all wait for.
  std::optional<JobId> element;
  std::vector<WaitingElements> elements;
  std::vector<Wait> others;  // not the want of room
  // Set when there is no room for it now.
  std::optional<Diagnosis> diagnosis;
  // Each is enough by itself for it to start; smallest first.
  std::vector<NamedChange> changes;
  bool changes_complete = true;
  Ahead ahead;
  // What was asked for of the past, oldest first.
  std::vector<PastWait> history;
};

// Of which time.
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
  Explanation Explain(const ClusterState& state, const JobRecord& job,
                      bool read_only, const ExplainWhen& when = {});
  // Of an array: what its elements wait for, and the rest of the first of them.
  // REQUIRES: it is here.
  Explanation ExplainArray(const ClusterState& state, const JobId& array,
                           bool read_only, const ExplainWhen& when = {});

 private:
  static constexpr size_t kDiagnosesMax = 64;
  struct Diagnosed {
    uint64_t version = 0;  // of the nodes
    FullDiagnosis full;
  };

  // Costs nothing while nothing has changed.  Valid until the next call.
  const FullDiagnosis& DiagnosisOf(const ClusterState& state,
                                   const GangRequest& request);

  WaitHistory waits_;
  std::map<GangRequest, Diagnosed> diagnoses_;
};

}  // namespace cohort::head
