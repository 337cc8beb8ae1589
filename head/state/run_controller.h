#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

#include "common/strong_id.h"
#include "head/placement/placement.h"
#include "head/state/cause_chain.h"
#include "head/state/observed.h"
#include "head/store/enum_text.h"
#include "head/store/records.h"

namespace cohort::head {

// The edges of an attempt's life, drawn in docs/design/0001-first-light.md.
constexpr bool MayMove(AttemptState from, AttemptState to) {
  switch (from) {
    case v1::ATTEMPT_STATE_PREPARING:
      return to == v1::ATTEMPT_STATE_RUNNING || to == v1::ATTEMPT_STATE_ENDING;
    case v1::ATTEMPT_STATE_RUNNING:
      return to == v1::ATTEMPT_STATE_ENDING || to == v1::ATTEMPT_STATE_ENDED;
    case v1::ATTEMPT_STATE_ENDING:
      return to == v1::ATTEMPT_STATE_ENDED;
    default:
      return false;
  }
}

// What a step changed beyond the two records: the caller stores, sends and
// releases accordingly.
struct RunOutcome {
  bool job_changed = false;         // the job's row is to be stored
  bool attempt_changed = false;     // the attempt's row is to be stored
  bool metrics_changed = false;     // only the job's metrics: stored when due
  bool preflight_told = false;      // job.preflight is new and has no time yet
  std::vector<JobState> job_moves;  // in this order
  // Goals of all parts may be other ones.
  bool goals_changed = false;
  // Rank 0's part has other directories to remove.
  bool retired_changed = false;
  // Parts that became over now: their resources return.
  std::vector<NodeId> parts_over;
  // Checkpoint records that were dealt with.
  std::vector<std::string> acknowledged;
  bool attempt_ended = false;

  // For the event rows: kind and text, in order.
  struct Note {
    const char* kind;
    std::string text;
  };
  std::vector<Note> notes;
};

// How the run of a job goes on: attempts, first failures, budgets, checkpoints.
//
//   JB-2: an attempt is charged at most once, and only after it ended.
//   CK-1: a checkpoint exists when its record is committed, fenced by attempt
//         and epoch: only the present attempt of a job adds to the row.
//   PF-4: an attempt that does not come through its preflight ends by that,
//         whichever rank was seen to fail first.
//
// Decides on the two records it is given and nothing else.  Immutable; belongs
// to ClusterState.
class RunController {
 public:
  struct Limits {
    // Ends by loss of a node or keeper that start again whatever max_failures.
    int free_infra_restarts = 3;
    // Records in a job's row when num_to_keep is 0; directories stay.
    size_t checkpoints_max = 1'000;
    size_t retired_max = 1'000;
    size_t metrics_bytes_max = 64 << 10;
    size_t detail_bytes_max = 4 << 10;
    size_t stderr_bytes_max = 64 << 10;
    size_t preflight_bytes_max = 16 << 10;
  };

  // `names` is asked for what people are told only.
  RunController(Limits limits, NodeNames names)
      : limits_(limits), names_(std::move(names)) {}

  // The next attempt of a job that was planned; `master_address` is where rank
  // 0's node can be reached.  The caller moves the job to STARTING.
  AttemptRecord Begin(JobRecord& job, const AttemptId& id, const Plan& plan,
                      std::string master_address) const;

  // What `node`, which has a part of `attempt` that is not over, says of it.
  // REQUIRES: the attempt is the job's last and has not ENDED.
  RunOutcome Observe(JobRecord& job, AttemptRecord& attempt, const NodeId& node,
                     const ObservedAttempt& observed) const;

  // As Observe, for a part that is over: what may still come is a stderr tail,
  // while the job tells of that attempt's failure, and, of `latest`, the job's
  // last attempt, that retired directories are gone.
  RunOutcome ObserveAfterwards(JobRecord& job, const AttemptRecord& attempt,
                               const AttemptRecord& latest, const NodeId& node,
                               const ObservedAttempt& observed) const;

  // The node is dead, or has nothing of its part.
  RunOutcome LosePart(JobRecord& job, AttemptRecord& attempt,
                      const NodeId& node, absl::string_view why) const;

  // A person ends an attempt that was an orphan: its job begins another.
  RunOutcome EndOrphan(JobRecord& job, AttemptRecord& attempt) const;

  // A person stops the job.
  RunOutcome Stop(JobRecord& job, AttemptRecord& attempt) const;

  // A node of the attempt is to be empty: it ends with the job's grace and
  // starts again elsewhere, uncharged.  Nothing when it ends already.
  // REQUIRES: the attempt is the job's last and has not ENDED.
  RunOutcome Evict(JobRecord& job, AttemptRecord& attempt,
                   absl::string_view why) const;

  // A node has no room for what it was to begin: the attempt ends before its
  // ranks were told to run, and its job waits for another place.
  // REQUIRES: the attempt is kPreparing.
  RunOutcome GiveWay(JobRecord& job, AttemptRecord& attempt,
                     absl::string_view why) const;

 private:
  void ApplyRanks(AttemptRecord& attempt, AttemptPart& part,
                  const ObservedAttempt& observed, RunOutcome& outcome) const;
  void ApplyGpuEnds(AttemptRecord& attempt, const AttemptPart& part,
                    const ObservedAttempt& observed, RunOutcome& outcome) const;
  void ApplyPreflight(JobRecord& job, AttemptRecord& attempt,
                      const AttemptPart& part, const ObservedAttempt& observed,
                      RunOutcome& outcome) const;
  void ApplyPhase(const JobRecord& job, AttemptRecord& attempt,
                  AttemptPart& part, const ObservedAttempt& observed,
                  RunOutcome& outcome) const;
  void ApplyEnd(const JobRecord& job, AttemptRecord& attempt, AttemptPart& part,
                const ObservedAttempt& observed, RunOutcome& outcome) const;
  void ApplyTimeLimit(const JobRecord& job, AttemptRecord& attempt,
                      const AttemptPart& part, const ObservedAttempt& observed,
                      RunOutcome& outcome) const;
  void ApplyTail(JobRecord& job, const AttemptRecord& attempt,
                 const AttemptPart& part, const ObservedAttempt& observed,
                 RunOutcome& outcome) const;
  void ApplyMetrics(JobRecord& job, const AttemptPart& part,
                    const ObservedAttempt& observed, RunOutcome& outcome) const;
  // Takes the attempt as far as its parts and its cause let it.
  void Advance(JobRecord& job, AttemptRecord& attempt,
               RunOutcome& outcome) const;
  void End(JobRecord& job, AttemptRecord& attempt, RunOutcome& outcome) const;
  void Succeed(JobRecord& job, RunOutcome& outcome) const;
  // What becomes of the job after an attempt that neither succeeded nor was
  // stopped.
  void Fail(JobRecord& job, AttemptRecord& attempt, RunOutcome& outcome) const;

  const Limits limits_;
  const NodeNames names_;
};

}  // namespace cohort::head
