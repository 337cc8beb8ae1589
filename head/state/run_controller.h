#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

#include "common/strong_id.h"
#include "head/placement/placement.h"
#include "head/state/cause_chain.h"
#include "head/state/desired.h"
#include "head/state/end_reason.h"
#include "head/state/observed.h"
#include "head/store/records.h"
#include "rpc/enum_text.h"

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

inline constexpr char kStoppedOnRequest[] = "stopped on request";

// What a step changed beyond the two records: the caller stores, sends and
// releases accordingly.
struct RunOutcome {
  bool job_changed = false;         // the job's row is to be stored
  bool attempt_changed = false;     // the attempt's row is to be stored
  std::set<int> slots;              // of which rows of their own are
  bool metrics_changed = false;     // only the job's metrics: stored when due
  bool preflight_told = false;      // job.preflight is new and has no time yet
  std::vector<JobState> job_moves;  // in this order
  // Goals at all places may be other ones.
  bool goals_changed = false;
  // Slot 0's place has other directories to remove.
  bool retired_changed = false;
  // Processes that became over now, and where: their resources return.
  std::vector<std::pair<Incarnation, NodeId>> over;
  // Which slots wait to be filled may be other ones.
  bool asks = false;
  bool epoch_changed = false;
  bool addresses_changed = false;  // of a process
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

// How the run of a job goes on: attempts, processes, first failures, budgets,
// checkpoints.
//
//   JB-2: an attempt is charged at most once, and only after it ended; under
//         ONE and NONE each end of a process at most once.
//   CK-1: a checkpoint exists when its record is committed, fenced by attempt
//         and epoch: only the present attempt of a job adds to the row.
//   PF-4: an attempt that does not come through its preflight ends by that,
//         whichever rank was seen to fail first.
//   PR-1: a slot is filled again only once nothing of its process is left.
//   PR-3: a process of an earlier incarnation changes nothing.
//   PR-4: one step makes at most one epoch, and each change of who is in it
//         makes one.
//
// Decides on the two records it is given and nothing else.  Immutable; belongs
// to ClusterState.
class RunController {
 public:
  struct Limits {
    // Ends by loss of a node or keeper that start again whatever max_failures:
    // of a job, under ONE and NONE of each slot.
    int free_infra_restarts = 3;
    // Records in a job's row when num_to_keep is 0; directories stay.
    int checkpoints_max = 1'000;
    int retired_max = 1'000;
    size_t metrics_bytes_max = 64 << 10;
    size_t detail_bytes_max = 4 << 10;
    size_t stderr_bytes_max = 64 << 10;
    size_t preflight_bytes_max = 16 << 10;
  };

  // `names` is asked for what people are told only.
  RunController(Limits limits, NodeNames names)
      : limits_(limits), names_(std::move(names)) {}

  // The next attempt of a job that was planned; `master_address` is where slot
  // 0's node can be reached.  The caller moves the job to STARTING.
  AttemptRecord Begin(JobRecord& job, const AttemptId& id, const Plan& plan,
                      std::string master_address) const;

  // The slots, of which the plan has as many ranks, are filled.
  // REQUIRES: they wait.
  RunOutcome Fill(JobRecord& job, AttemptRecord& attempt,
                  const std::vector<int>& slots, const Plan& plan,
                  const std::string& master_address) const;

  // What `node`, which has a place of `attempt` that is not over, says of it.
  // REQUIRES: the attempt is the job's last and has not ENDED.
  RunOutcome Observe(JobRecord& job, AttemptRecord& attempt, const NodeId& node,
                     const v1::ObservedPlace& observed) const;

  // As Observe, for a place that is over: what may still come is a stderr tail,
  // while the job tells of that attempt's failure, and, of `latest`, the job's
  // last attempt, that retired directories are gone; and warnings.
  RunOutcome ObserveAfterwards(JobRecord& job, AttemptRecord& attempt,
                               const AttemptRecord& latest, const NodeId& node,
                               const v1::ObservedPlace& observed) const;

  // The node is dead, or has nothing of its place.
  RunOutcome LosePlace(JobRecord& job, AttemptRecord& attempt,
                       const NodeId& node, absl::string_view why) const;

  // A person ends an attempt that was an orphan: its job begins another.
  RunOutcome EndOrphan(JobRecord& job, AttemptRecord& attempt) const;

  // A person stops the job.
  RunOutcome Stop(JobRecord& job, AttemptRecord& attempt,
                  const std::string& why = kStoppedOnRequest) const;

  // A node of the attempt is to be empty: what is there ends with the job's
  // grace and starts again elsewhere, uncharged; under ALL, the whole attempt.
  // Nothing when it ends already.
  // REQUIRES: the attempt is the job's last and has not ENDED.
  RunOutcome Evict(JobRecord& job, AttemptRecord& attempt, const NodeId& node,
                   absl::string_view why) const;

  // A node has no room for what it was to begin: the attempt ends before its
  // ranks were told to run, and its job waits for another place.
  // REQUIRES: the attempt is kPreparing.
  RunOutcome Displace(JobRecord& job, AttemptRecord& attempt,
                      absl::string_view why) const;

  // The slots have backed off: they wait from now on.  REQUIRES: they did.
  RunOutcome Refill(AttemptRecord& attempt,
                    const std::vector<int>& slots) const;

  // The job is to have job.num_workers slots: adds some that wait, or ends the
  // highest.  REQUIRES: the policy is not ALL; as Evict.
  RunOutcome Resize(JobRecord& job, AttemptRecord& attempt) const;

 private:
  // How a process ended, or did not begin.
  struct ProcessEnd {
    int slot = 0;
    NodeId node;
    AttemptCause cause = v1::ATTEMPT_CAUSE_NONE;  // NONE: with success
    std::string detail;
    std::string fact;  // for the chain of causes
    int order = 0;     // of the ends at its place
  };

  void ApplyPreflight(JobRecord& job, AttemptRecord& attempt,
                      const NodeId& node, const v1::ObservedPlace& observed,
                      RunOutcome& outcome) const;
  // What became of its processes; of those that end now, how.
  void ApplyPlace(AttemptRecord& attempt, Place& place,
                  const v1::ObservedPlace& observed, RunOutcome& outcome,
                  std::vector<ProcessEnd>& ends) const;
  void FailPlace(AttemptRecord& attempt, Place& place,
                 const v1::ObservedPlace& observed, RunOutcome& outcome,
                 std::vector<ProcessEnd>& ends) const;
  void ApplyProcesses(AttemptRecord& attempt, Place& place,
                      const v1::ObservedPlace& observed, RunOutcome& outcome,
                      std::vector<ProcessEnd>& ends) const;
  void ApplyProcess(AttemptRecord& attempt, Process& process,
                    const v1::ObservedProcess& seen, RunOutcome& outcome,
                    std::vector<ProcessEnd>& ends) const;
  void ApplyGpuEnd(AttemptRecord& attempt, const v1::ObservedProcess& seen,
                   RunOutcome& outcome) const;
  void ApplyMetrics(JobRecord& job, AttemptRecord& attempt, const NodeId& node,
                    const v1::ObservedPlace& observed,
                    RunOutcome& outcome) const;
  void ApplyTails(JobRecord& job, AttemptRecord& attempt, const NodeId& node,
                  const v1::ObservedPlace& observed, RunOutcome& outcome) const;
  ProcessEnd EndOf(const AttemptRecord& attempt, const Process& process,
                   const v1::ObservedProcess& seen) const;
  // Nothing of it is left, and nobody knows how it ended.
  void Lose(Process& process, RunOutcome& outcome) const;
  void LoseUnknown(Process& process, RunOutcome& outcome,
                   std::vector<ProcessEnd>& ends) const;
  void SetOver(Process& process, RunOutcome& outcome) const;

  // What follows from the ends of processes, by the restart policy.
  void ApplyEnds(JobRecord& job, AttemptRecord& attempt,
                 std::vector<ProcessEnd> ends, RunOutcome& outcome) const;
  void EndGang(const JobRecord& job, AttemptRecord& attempt,
               const std::vector<ProcessEnd>& ends, RunOutcome& outcome) const;
  void EndSlot(JobRecord& job, AttemptRecord& attempt, const ProcessEnd& end,
               RunOutcome& outcome) const;
  void EndByTimeLimit(const JobRecord& job, AttemptRecord& attempt,
                      const ProcessEnd& end, RunOutcome& outcome) const;
  // To the slot's budget, and whether it is filled again.
  void ChargeSlot(JobRecord& job, AttemptRecord& attempt, const ProcessEnd& end,
                  RunOutcome& outcome) const;
  // Slots whose processes are over and that are to be filled again back off, or
  // wait from now on; those that a smaller job does not have go.
  void Vacate(JobRecord& job, AttemptRecord& attempt,
              RunOutcome& outcome) const;
  // What the slot was given is free.
  static void LeaveRoom(Process& process, RunOutcome& outcome);
  static void AskAgain(Process& process, RunOutcome& outcome);
  void BumpEpoch(JobRecord& job, AttemptRecord& attempt,
                 RunOutcome& outcome) const;

  RunOutcome EndBy(JobRecord& job, AttemptRecord& attempt, AttemptCause cause,
                   std::string why) const;
  static void SetCause(AttemptRecord& attempt, EndReason reason,
                       RunOutcome& outcome);

  // Takes the attempt as far as its processes and its cause let it.
  void Advance(JobRecord& job, AttemptRecord& attempt,
               RunOutcome& outcome) const;
  void Start(AttemptRecord& attempt, RunOutcome& outcome) const;
  // Nothing of it runs any more, and nobody made it end.
  void Complete(AttemptRecord& attempt, RunOutcome& outcome) const;
  void End(JobRecord& job, AttemptRecord& attempt, RunOutcome& outcome) const;
  void Succeed(JobRecord& job, RunOutcome& outcome) const;
  // What becomes of the job after an attempt that neither succeeded nor was
  // stopped.
  void Fail(JobRecord& job, AttemptRecord& attempt, RunOutcome& outcome) const;

  const Limits limits_;
  const NodeNames names_;
};

// Whether the processes of a job live and fail one by one.
bool RunsOneByOne(const JobRecord& job);

// How long a slot backs off before it is filled again: as long as after that
// many charged failures, the first move to another node being free.
absl::Duration BackOffOf(const JobRecord& job, const Process& process);

}  // namespace cohort::head
