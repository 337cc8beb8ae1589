#include "head/state/run_controller.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "common/printable_text.h"
#include "head/state/attempt_table.h"
#include "head/state/cause_chain.h"
#include "head/state/checkpoint_rows.h"
#include "head/state/end_reason.h"
#include "head/state/failure_class.h"
#include "head/state/job_spec.h"
#include "head/state/job_warnings.h"
#include "head/state/reconciler.h"
#include "head/state/retry_backoff.h"
#include "rpc/enum_text.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

// Of what nodes say; longer is not a time that a job can have run.
constexpr absl::Duration kRanMax = absl::Hours(24 * 365 * 100);

uint64_t NextIncarnation(JobRecord& job) {
  job.row.set_incarnations(job.row.incarnations() + 1);
  return job.row.incarnations();
}

bool AllOver(const AttemptRecord& attempt) {
  return std::all_of(attempt.processes.begin(), attempt.processes.end(),
                     [](const Process& each) { return each.over(); });
}

// Every process that is to run has been seen to.
bool AllRun(const AttemptRecord& attempt) {
  return std::all_of(attempt.processes.begin(), attempt.processes.end(),
                     [](const Process& each) {
                       return each.waits() ||
                              each.state >= v1::PROCESS_STATE_RUNNING;
                     });
}

bool AnyLiveOn(const AttemptRecord& attempt, const NodeId& node) {
  return std::any_of(
      attempt.processes.begin(), attempt.processes.end(),
      [&](const Process& each) { return each.node == node && !each.over(); });
}

bool AllRunOn(const AttemptRecord& attempt, const NodeId& node) {
  bool any = false;
  for (const Process& process : attempt.processes) {
    if (process.node != node) continue;
    if (process.state < v1::PROCESS_STATE_RUNNING) return false;
    any = true;
  }
  return any;
}

// Every process has a node, and each node is ready to begin them.
bool AllPrepared(const AttemptRecord& attempt) {
  return std::all_of(attempt.processes.begin(), attempt.processes.end(),
                     [&](const Process& each) {
                       if (each.waits() || each.backs_off()) return false;
                       return each.over() ||
                              PlaceOn(attempt, each.node)->phase >=
                                  v1::PLACE_PHASE_PREPARED;
                     });
}

void MoveAttempt(AttemptRecord& attempt, AttemptState to, RunOutcome& outcome) {
  COHORT_CHECK(MayMove(attempt.state, to))
      << attempt.id << " " << EnumText(attempt.state) << " " << EnumText(to);
  attempt.state = to;
  outcome.attempt_changed = true;
  outcome.goals_changed = true;
}

// Where the job will be once the outcome's moves are made.
JobState StateAfter(const JobRecord& job, const RunOutcome& outcome) {
  return outcome.job_moves.empty() ? job.row.state() : outcome.job_moves.back();
}

void MoveJob(JobState to, RunOutcome& outcome) {
  outcome.job_moves.push_back(to);
  outcome.job_changed = true;
}

// How long the attempt ran: as long as its longest slot.  What a node did not
// live to tell is not counted.
absl::Duration RanFor(const AttemptRecord& attempt) {
  absl::Duration ran;
  for (const Process& each : attempt.processes) ran = std::max(ran, each.ran);
  return ran;
}

// Of an event.
const char* KindOf(GpuAbortLevel level) {
  switch (level) {
    case v1::GPU_ABORT_LEVEL_UNSPECIFIED:
    case v1::GPU_ABORT_LEVEL_REVOKED:
      return "gpu_comm_revoked";
    case v1::GPU_ABORT_LEVEL_ABORTED:
      return "gpu_comm_aborted";
    default:
      return "gpu_comm_killed";
  }
}

// Those of the attempt's living processes on `node`.
std::set<int> LocalRanksOn(const AttemptRecord& attempt, const NodeId& node) {
  std::set<int> taken;
  for (const Process& process : attempt.processes) {
    if (process.node == node && !process.over()) {
      taken.insert(process.local_rank);
    }
  }
  return taken;
}

}  // namespace

bool RunsOneByOne(const JobRecord& job) {
  return job.spec->run().restart() == v1::RESTART_POLICY_ONE ||
         job.spec->run().restart() == v1::RESTART_POLICY_NONE;
}

absl::Duration BackOffOf(const JobRecord& job, const Process& process) {
  return RetryDelay(*job.spec,
                    process.failures + std::max(process.moves - 1, 0));
}

// ---- begin ----

AttemptRecord RunController::Begin(JobRecord& job, const AttemptId& id,
                                   const Plan& plan,
                                   std::string master_address) const {
  job.row.set_attempts(job.row.attempts() + 1);
  job.row.set_epoch(job.row.epoch() + 1);
  // What the last failure was is told until the next one, or success.
  job.row.clear_reason();
  job.row.set_metrics_count(0);  // ranks count their reports again

  AttemptRecord attempt;
  attempt.id = id;
  attempt.job = job.id;
  attempt.number = job.row.attempts();
  attempt.epoch = job.row.epoch();
  attempt.master_address = std::move(master_address);
  attempt.origin = job.row.origin();
  for (const PlannedPart& planned : plan.parts) {
    attempt.places.push_back({.node = planned.node});
    for (const PlannedRank& rank : planned.ranks) {
      Process& added = attempt.processes.emplace_back();
      added.slot = rank.rank;
      added.incarnation = NextIncarnation(job);
      added.node = planned.node;
      added.local_rank = rank.local_rank;
      added.devices = rank.devices;
    }
  }
  return attempt;
}

RunOutcome RunController::Fill(JobRecord& job, AttemptRecord& attempt,
                               const std::vector<int>& slots, const Plan& plan,
                               const std::string& master_address) const {
  RunOutcome outcome;
  auto next = slots.begin();
  for (const PlannedPart& planned : plan.parts) {
    Place* place = PlaceOn(attempt, planned.node);
    if (place == nullptr) {
      place = &attempt.places.emplace_back(Place{.node = planned.node});
      outcome.attempt_changed = true;
    } else if (IsOver(*place)) {
      *place = {.node = planned.node};
      outcome.attempt_changed = true;
    }
    const std::set<int> taken = LocalRanksOn(attempt, planned.node);
    int local_rank = 0;
    for (const PlannedRank& rank : planned.ranks) {
      while (taken.contains(local_rank)) ++local_rank;
      const int slot = *next++;
      Process& process = attempt.processes[static_cast<size_t>(slot)];
      COHORT_CHECK(process.waits()) << attempt.id << " " << slot;
      process.local_rank = local_rank++;
      process.incarnation = NextIncarnation(job);
      process.node = planned.node;
      process.devices = rank.devices;
      process.exit.reset();
      outcome.slots.insert(slot);
      outcome.notes.push_back(
          {.kind = "rank_placed",
           .text = absl::StrCat("rank ", slot, " on ", names_(planned.node),
                                ", incarnation ", process.incarnation)});
    }
  }
  if (slots.front() == 0) {
    attempt.master_address = master_address;
    const Place& place = *PlaceOn(attempt, attempt.processes.front().node);
    attempt.master_port =
        place.phase >= v1::PLACE_PHASE_PREPARED ? place.master_port : 0;
    job.row.set_metrics_count(0);  // it counts its reports again
    outcome.attempt_changed = true;
  }
  outcome.goals_changed = true;
  BumpEpoch(job, attempt, outcome);
  Advance(job, attempt, outcome);
  return outcome;
}

void RunController::BumpEpoch(JobRecord& job, AttemptRecord& attempt,
                              RunOutcome& outcome) const {
  // PR-4: whatever this step has ended or begun.
  if (attempt.epoch == job.row.epoch() && !outcome.epoch_changed) {
    job.row.set_epoch(job.row.epoch() + 1);
    attempt.epoch = job.row.epoch();
    outcome.epoch_changed = true;
    outcome.job_changed = true;
    outcome.goals_changed = true;
  }
}

// ---- what nodes say ----

RunOutcome RunController::Observe(JobRecord& job, AttemptRecord& attempt,
                                  const NodeId& node,
                                  const v1::ObservedPlace& observed) const {
  Place* const place = PlaceOn(attempt, node);
  COHORT_CHECK(place != nullptr && !IsOver(*place) &&
               attempt.state != v1::ATTEMPT_STATE_ENDED &&
               attempt.number == job.row.attempts())
      << attempt.id;
  RunOutcome outcome;
  std::vector<ProcessEnd> ends;
  ApplyPreflight(job, attempt, node, observed, outcome);
  ApplyProcesses(attempt, *place, observed, outcome, ends);
  ApplyMetrics(job, attempt, node, observed, outcome);
  TakeCheckpoints(observed, attempt, limits_, job, outcome);
  TakeRemoved(observed, job, outcome);
  TakeWarnings(observed, limits_, job, outcome);
  ApplyPlace(attempt, *place, observed, outcome, ends);
  ApplyEnds(job, attempt, std::move(ends), outcome);
  ApplyTails(job, attempt, node, observed, outcome);
  Advance(job, attempt, outcome);
  return outcome;
}

RunOutcome RunController::ObserveAfterwards(
    JobRecord& job, AttemptRecord& attempt, const AttemptRecord& latest,
    const NodeId& node, const v1::ObservedPlace& observed) const {
  RunOutcome outcome;
  const bool is_latest = attempt.number == job.row.attempts();
  // Last words come after the state: the next attempt may have begun.  The job
  // tells of the last failure, which is this one's until that one fails.
  const bool is_last_failure = attempt.number + 1 == job.row.attempts() &&
                               latest.failed_rank < 0 &&
                               job.row.failed_rank() == attempt.failed_rank;
  if (is_latest || is_last_failure) {
    ApplyTails(job, attempt, node, observed, outcome);
  }
  if (is_latest) TakeRemoved(observed, job, outcome);
  TakeWarnings(observed, limits_, job, outcome);
  return outcome;
}

void RunController::ApplyPlace(AttemptRecord& attempt, Place& place,
                               const v1::ObservedPlace& observed,
                               RunOutcome& outcome,
                               std::vector<ProcessEnd>& ends) const {
  const Place before = place;
  const bool may_change = place.phase < v1::PLACE_PHASE_RUNNING;
  if (observed.phase() == v1::PHASE_FAILED) {
    FailPlace(attempt, place, observed, outcome, ends);
  } else if (may_change && observed.phase() == v1::PHASE_PREPARING) {
    // A restarted daemon prepares again; the port that it had is gone.
    place.phase = v1::PLACE_PHASE_ASSIGNED;
    place.master_port = 0;
  } else if (may_change && observed.phase() == v1::PHASE_PREPARED) {
    place.phase = v1::PLACE_PHASE_PREPARED;
    place.master_port = observed.master_port();
    if (attempt.state == v1::ATTEMPT_STATE_RUNNING &&
        HoldsRankZero(attempt, place.node)) {
      attempt.master_port = place.master_port;
    }
  }
  if (!IsOver(place) && attempt.state != v1::ATTEMPT_STATE_PREPARING &&
      AllRunOn(attempt, place.node)) {
    place.phase = v1::PLACE_PHASE_RUNNING;
  }
  if (place != before) {
    outcome.attempt_changed = true;
    // Processes that were added later begin as soon as their place is ready.
    outcome.goals_changed |= place.phase == v1::PLACE_PHASE_PREPARED &&
                             attempt.state == v1::ATTEMPT_STATE_RUNNING;
  }
}

void RunController::FailPlace(AttemptRecord& attempt, Place& place,
                              const v1::ObservedPlace& observed,
                              RunOutcome& outcome,
                              std::vector<ProcessEnd>& ends) const {
  AttemptCause cause = v1::ATTEMPT_CAUSE_PREPARE_FAILED;
  const char* otherwise = "it could not be prepared";
  switch (observed.end_cause()) {
    case v1::END_CAUSE_PACKAGE_LOST:
      cause = v1::ATTEMPT_CAUSE_PACKAGE_LOST;
      otherwise = "the head does not have its package";
      break;
    case v1::END_CAUSE_NODE_FAILED:
      cause = v1::ATTEMPT_CAUSE_NODE_FAILED;
      otherwise = "its node could not begin it";
      break;
    case v1::END_CAUSE_DAEMON_SHUTDOWN:
      cause = v1::ATTEMPT_CAUSE_DAEMON_SHUTDOWN;
      otherwise = "its worker was shut down";
      break;
    case v1::END_CAUSE_MISSING:
      cause = v1::ATTEMPT_CAUSE_NODE_LOST;
      otherwise = "its node knows nothing of it";
      break;
    default:
      break;
  }
  place.phase = v1::PLACE_PHASE_ENDED;
  outcome.attempt_changed = true;
  outcome.goals_changed = true;
  const std::string detail =
      observed.detail().empty()
          ? std::string(otherwise)
          : Cut(observed.detail(), limits_.detail_bytes_max);
  for (Process& process : attempt.processes) {
    if (process.node != place.node || process.over()) continue;
    Lose(process, outcome);
    ends.push_back({.slot = process.slot,
                    .node = place.node,
                    .cause = cause,
                    .detail = detail,
                    .fact = absl::StrCat(names_(place.node), ": ", detail)});
  }
}

void RunController::ApplyProcesses(AttemptRecord& attempt, Place& place,
                                   const v1::ObservedPlace& observed,
                                   RunOutcome& outcome,
                                   std::vector<ProcessEnd>& ends) const {
  std::set<int> listed;
  for (const v1::ObservedProcess& seen : observed.processes()) {
    Process* const process =
        FindProcess(attempt, seen.slot(), seen.incarnation());
    if (process == nullptr || process->node != place.node || process->over() ||
        !v1::ProcessState_IsValid(seen.state())) {
      continue;  // PR-3
    }
    listed.insert(seen.slot());
    ApplyGpuEnd(attempt, seen, outcome);
    ApplyProcess(attempt, *process, seen, outcome, ends);
  }
  // What was seen there and is not any more: its daemon was put back to a time
  // before it began (PR-2).
  for (Process& process : attempt.processes) {
    if (process.node != place.node || process.over() ||
        process.state < v1::PROCESS_STATE_STARTING ||
        listed.contains(process.slot)) {
      continue;
    }
    LoseUnknown(process, outcome, ends);
  }
}

void RunController::LoseUnknown(Process& process, RunOutcome& outcome,
                                std::vector<ProcessEnd>& ends) const {
  const std::string detail = "its node does not know it any more";
  if (process.state < v1::PROCESS_STATE_EXITED) {
    ends.push_back({.slot = process.slot,
                    .node = process.node,
                    .cause = v1::ATTEMPT_CAUSE_NODE_LOST,
                    .detail = detail,
                    .fact = absl::StrCat(names_(process.node), ": ", detail)});
  }
  Lose(process, outcome);
}

void RunController::ApplyProcess(AttemptRecord& attempt, Process& process,
                                 const v1::ObservedProcess& seen,
                                 RunOutcome& outcome,
                                 std::vector<ProcessEnd>& ends) const {
  if (seen.state() < v1::PROCESS_STATE_STARTING) {
    if (process.state >= v1::PROCESS_STATE_STARTING) {
      LoseUnknown(process, outcome, ends);
    }
    return;
  }
  const ProcessState before = process.state;
  const bool has_ended = seen.state() >= v1::PROCESS_STATE_EXITED;
  // Nothing runs before the head said so.
  if (attempt.state == v1::ATTEMPT_STATE_PREPARING && !has_ended) return;
  if (seen.pid() > 0) process.pid = seen.pid();
  std::vector<std::string> addresses = AddressesOf(seen);
  outcome.addresses_changed |= addresses != process.addresses;
  process.addresses = std::move(addresses);
  process.state =
      std::max(process.state, std::min(seen.state(), v1::PROCESS_STATE_EXITED));
  // The first ones are known by their place.
  if (before == v1::PROCESS_STATE_PENDING &&
      (process.has_row ||
       PlaceOn(attempt, process.node)->phase == v1::PLACE_PHASE_RUNNING)) {
    outcome.slots.insert(process.slot);
  }
  if (has_ended && before < v1::PROCESS_STATE_EXITED) {
    outcome.slots.insert(process.slot);
    if (seen.has_exit()) {
      process.exit = WithoutUnknown(seen.exit());
      process.exit->set_detail(
          Cut(seen.exit().detail(), limits_.detail_bytes_max));
    }
    process.ran +=
        std::clamp(rpc::FromWire(seen.ran()), absl::ZeroDuration(), kRanMax);
    process.ran = std::min(process.ran, kRanMax);
    ends.push_back(EndOf(attempt, process, seen));
  } else if (attempt.cause == v1::ATTEMPT_CAUSE_RANK_FAILED &&
             seen.state() == v1::PROCESS_STATE_ENDED &&
             seen.end_cause() == v1::END_CAUSE_DEVICE_FAULT) {
    // A fault may be found only after the exit that it explains.
    ends.push_back(EndOf(attempt, process, seen));
  }
  if (seen.state() == v1::PROCESS_STATE_ENDED) SetOver(process, outcome);
}

void RunController::SetOver(Process& process, RunOutcome& outcome) const {
  if (process.over()) return;
  process.state = v1::PROCESS_STATE_ENDED;
  outcome.slots.insert(process.slot);
  outcome.over.push_back({{process.slot, process.incarnation}, process.node});
}

void RunController::Lose(Process& process, RunOutcome& outcome) const {
  if (process.state < v1::PROCESS_STATE_EXITED) process.exit.reset();
  SetOver(process, outcome);
}

// One event for each abort level of an attempt, by the first rank that told of
// it: all ranks of a gang climb together.
void RunController::ApplyGpuEnd(AttemptRecord& attempt,
                                const v1::ObservedProcess& seen,
                                RunOutcome& outcome) const {
  const GpuAbortLevel level = seen.gpu_end().level();
  if (!v1::GpuAbortLevel_IsValid(level) ||
      level == v1::GPU_ABORT_LEVEL_UNSPECIFIED) {
    return;
  }
  const uint32_t bit = uint32_t{1} << static_cast<int>(level);
  if ((attempt.gpu_abort_levels & bit) != 0) return;
  attempt.gpu_abort_levels |= bit;
  outcome.attempt_changed = true;
  outcome.notes.push_back(
      {.kind = KindOf(level),
       .text = absl::StrCat(
           "rank ", seen.slot(), ": ",
           Cut(OneLine(seen.gpu_end().why()), limits_.detail_bytes_max))});
}

void RunController::ApplyTails(JobRecord& job, AttemptRecord& attempt,
                               const NodeId& node,
                               const v1::ObservedPlace& observed,
                               RunOutcome& outcome) const {
  if (attempt.failed_rank < 0 || !job.row.stderr_tail().empty()) return;
  for (const v1::ObservedProcess& seen : observed.processes()) {
    if (seen.stderr_tail().empty() || seen.slot() != attempt.failed_rank) {
      continue;
    }
    // Of an earlier one its node speaks, wherever the slot is now.
    const Process* const process =
        FindProcess(attempt, seen.slot(), seen.incarnation());
    if (process != nullptr && process->node != node) continue;
    job.row.set_stderr_tail(Cut(seen.stderr_tail(), limits_.stderr_bytes_max));
    outcome.job_changed = true;
  }
}

void RunController::ApplyMetrics(JobRecord& job, AttemptRecord& attempt,
                                 const NodeId& node,
                                 const v1::ObservedPlace& observed,
                                 RunOutcome& outcome) const {
  for (const v1::MetricsReport& report : observed.metrics()) {
    // As Ray: rank 0 speaks for the run.
    if (report.slot() != 0 || !IsOnNode(attempt, 0, node) ||
        FindProcess(attempt, 0, report.incarnation()) == nullptr ||
        report.count() <= job.row.metrics_count() ||
        report.json().size() > limits_.metrics_bytes_max) {
      continue;
    }
    job.row.set_metrics_json(report.json());
    job.row.set_metrics_count(report.count());
    outcome.metrics_changed = true;
  }
}

void RunController::ApplyPreflight(JobRecord& job, AttemptRecord& attempt,
                                   const NodeId& node,
                                   const v1::ObservedPlace& observed,
                                   RunOutcome& outcome) const {
  if (!job.spec->run().preflight() || !observed.has_preflight()) return;
  v1::PreflightReport told = WithoutUnknown(observed.preflight());
  // Of a newer worker's verdicts nothing is known but that it went on.
  if (!v1::PreflightVerdict_IsValid(told.verdict()) ||
      told.verdict() == v1::PREFLIGHT_VERDICT_UNSPECIFIED) {
    told.set_verdict(v1::PREFLIGHT_VERDICT_PASSED);
  }
  const bool failed = told.verdict() == v1::PREFLIGHT_VERDICT_FAILED;
  if (told.json().size() > limits_.preflight_bytes_max) told.clear_json();
  if (job.row.has_preflight() &&
      job.row.preflight().attempt() == attempt.number) {
    v1::PreflightReport& known = *job.row.mutable_preflight()->mutable_report();
    // Several nodes tell of one failure, the one with rank 0 in full.
    if (known.json().empty() && !told.json().empty()) {
      known.set_json(told.json());
      outcome.job_changed = true;
    }
    if (!failed || known.verdict() == v1::PREFLIGHT_VERDICT_FAILED) return;
  }
  const std::string summary =
      Cut(OneLine(told.summary()), limits_.detail_bytes_max);
  told.set_summary(summary);
  job.row.clear_preflight();
  job.row.mutable_preflight()->set_attempt(attempt.number);
  *job.row.mutable_preflight()->mutable_report() = told;
  outcome.job_changed = true;
  outcome.preflight_told = true;
  outcome.notes.push_back(
      {.kind = failed ? "preflight_failed"
               : told.verdict() == v1::PREFLIGHT_VERDICT_SLOW
                   ? "preflight_slow"
                   : "preflight_passed",
       .text = summary});
  if (!failed) return;
  SetCause(attempt,
           {.cause = v1::ATTEMPT_CAUSE_PREFLIGHT_FAILED,
            .detail = absl::StrCat("preflight: ", summary),
            .facts = {absl::StrCat("preflight: ", summary)},
            .node = node},
           outcome);
}

// ---- what people and clocks want ----

RunOutcome RunController::LosePlace(JobRecord& job, AttemptRecord& attempt,
                                    const NodeId& node,
                                    absl::string_view why) const {
  Place* const place = PlaceOn(attempt, node);
  COHORT_CHECK(place != nullptr && !IsOver(*place)) << attempt.id;
  RunOutcome outcome;
  place->phase = v1::PLACE_PHASE_LOST;
  outcome.attempt_changed = true;
  std::vector<ProcessEnd> ends;
  for (Process& process : attempt.processes) {
    if (process.node != node || process.over()) continue;
    if (process.state < v1::PROCESS_STATE_EXITED) {
      ends.push_back({.slot = process.slot,
                      .node = node,
                      .cause = v1::ATTEMPT_CAUSE_NODE_LOST,
                      .detail = std::string(why),
                      .fact = std::string(why)});
    }
    Lose(process, outcome);
  }
  ApplyEnds(job, attempt, std::move(ends), outcome);
  Advance(job, attempt, outcome);
  return outcome;
}

RunOutcome RunController::EndBy(JobRecord& job, AttemptRecord& attempt,
                                AttemptCause cause, std::string why) const {
  RunOutcome outcome;
  if (cause == v1::ATTEMPT_CAUSE_STOPPED) {
    MoveJob(v1::JOB_STATE_STOPPING, outcome);
  }
  const bool is_told = cause != v1::ATTEMPT_CAUSE_ORPHAN;
  SetCause(attempt,
           {.cause = cause,
            .detail = why,
            .facts = is_told ? std::vector<std::string>{why}
                             : std::vector<std::string>()},
           outcome);
  Advance(job, attempt, outcome);
  return outcome;
}

RunOutcome RunController::EndOrphan(JobRecord& job,
                                    AttemptRecord& attempt) const {
  return EndBy(job, attempt, v1::ATTEMPT_CAUSE_ORPHAN,
               "ended on request after the store was restored");
}

RunOutcome RunController::Stop(JobRecord& job, AttemptRecord& attempt,
                               const std::string& why) const {
  return EndBy(job, attempt, v1::ATTEMPT_CAUSE_STOPPED, why);
}

RunOutcome RunController::Displace(JobRecord& job, AttemptRecord& attempt,
                                   absl::string_view why) const {
  COHORT_CHECK(attempt.state == v1::ATTEMPT_STATE_PREPARING) << attempt.id;
  return EndBy(job, attempt, v1::ATTEMPT_CAUSE_NODE_FAILED, std::string(why));
}

RunOutcome RunController::Evict(JobRecord& job, AttemptRecord& attempt,
                                const NodeId& node,
                                absl::string_view why) const {
  COHORT_CHECK(attempt.state != v1::ATTEMPT_STATE_ENDED) << attempt.id;
  if (!RunsOneByOne(job) || attempt.state != v1::ATTEMPT_STATE_RUNNING) {
    return EndBy(job, attempt, v1::ATTEMPT_CAUSE_DRAINED, std::string(why));
  }
  RunOutcome outcome;
  for (Process& process : attempt.processes) {
    if (process.node != node || process.leaving) continue;
    if (process.backs_off()) LeaveRoom(process, outcome);
    if (process.over()) continue;
    process.leaving = true;
    outcome.slots.insert(process.slot);
    outcome.goals_changed = true;
  }
  return outcome;
}

RunOutcome RunController::Resize(JobRecord& job, AttemptRecord& attempt) const {
  RunOutcome outcome;
  for (Process& process : attempt.processes) {
    if (process.slot < job.row.num_workers() || process.retired) continue;
    process.retired = true;
    outcome.slots.insert(process.slot);
    BumpEpoch(job, attempt, outcome);
  }
  outcome.asks = true;  // those that waited may be gone
  Vacate(job, attempt, outcome);
  Advance(job, attempt, outcome);
  return outcome;
}

// ---- how far it is ----

void RunController::Start(AttemptRecord& attempt, RunOutcome& outcome) const {
  attempt.master_port =
      PlaceOn(attempt, attempt.processes.front().node)->master_port;
  if (attempt.master_port > 0 && attempt.master_port <= 65'535) {
    return MoveAttempt(attempt, v1::ATTEMPT_STATE_RUNNING, outcome);
  }
  SetCause(attempt,
           {.cause = v1::ATTEMPT_CAUSE_PREPARE_FAILED,
            .detail = "rank 0's node reserved no port",
            .facts = {"rank 0's node reserved no port"}},
           outcome);
}

void RunController::Advance(JobRecord& job, AttemptRecord& attempt,
                            RunOutcome& outcome) const {
  if (attempt.state == v1::ATTEMPT_STATE_PREPARING &&
      attempt.cause == v1::ATTEMPT_CAUSE_NONE && AllPrepared(attempt)) {
    Start(attempt, outcome);
  }
  if (attempt.state == v1::ATTEMPT_STATE_RUNNING &&
      attempt.cause == v1::ATTEMPT_CAUSE_NONE) {
    if (AllRun(attempt) && StateAfter(job, outcome) == v1::JOB_STATE_STARTING) {
      MoveJob(v1::JOB_STATE_RUNNING, outcome);
    }
    if (AllOver(attempt) && !HasWaiting(attempt)) Complete(attempt, outcome);
  }
  if (attempt.cause == v1::ATTEMPT_CAUSE_NONE) return;
  if (attempt.cause != v1::ATTEMPT_CAUSE_SUCCEEDED &&
      (attempt.state == v1::ATTEMPT_STATE_PREPARING ||
       attempt.state == v1::ATTEMPT_STATE_RUNNING)) {
    MoveAttempt(attempt, v1::ATTEMPT_STATE_ENDING, outcome);
    outcome.asks = true;  // nothing is asked for any more
    for (Process& process : attempt.processes) {
      if (process.backs_off()) LeaveRoom(process, outcome);
    }
  }
  for (Place& place : attempt.places) {
    if (IsOver(place) || AnyLiveOn(attempt, place.node)) continue;
    place.phase = v1::PLACE_PHASE_ENDED;
    outcome.attempt_changed = true;
    outcome.goals_changed = true;
  }
  if (AllOver(attempt)) End(job, attempt, outcome);
}

void RunController::Complete(AttemptRecord& attempt,
                             RunOutcome& outcome) const {
  const auto failed =
      std::find_if(attempt.processes.begin(), attempt.processes.end(),
                   [](const Process& each) { return !each.succeeded(); });
  if (failed == attempt.processes.end()) {
    return SetCause(attempt, {.cause = v1::ATTEMPT_CAUSE_SUCCEEDED}, outcome);
  }
  const int slot =
      attempt.failed_rank >= 0 ? attempt.failed_rank : failed->slot;
  const std::string detail =
      attempt.exit.has_value()
          ? DescribeExit(slot, "", *attempt.exit)
          : absl::StrCat("rank ", slot, " ended in an unknown way");
  SetCause(
      attempt,
      {.cause = v1::ATTEMPT_CAUSE_RANK_FAILED, .detail = detail, .facts = {}},
      outcome);
}

void RunController::End(JobRecord& job, AttemptRecord& attempt,
                        RunOutcome& outcome) const {
  MoveAttempt(attempt, v1::ATTEMPT_STATE_ENDED, outcome);
  outcome.attempt_ended = true;
  outcome.job_changed = true;
  for (const Process& process : attempt.processes) {
    if (process.has_row) outcome.slots.insert(process.slot);
  }
  job.row.set_ran_us(absl::ToInt64Microseconds(
      std::min(job.ran() + RanFor(attempt), kRanMax)));
  if (StateAfter(job, outcome) == v1::JOB_STATE_STOPPING) {
    // A failure came before: it was stopped all the same.
    job.row.set_reason(attempt.cause == v1::ATTEMPT_CAUSE_STOPPED
                           ? attempt.detail
                           : kStoppedOnRequest);
    return MoveJob(v1::JOB_STATE_STOPPED, outcome);
  }
  if (attempt.cause == v1::ATTEMPT_CAUSE_SUCCEEDED)
    return Succeed(job, outcome);
  Fail(job, attempt, outcome);
}

void RunController::Succeed(JobRecord& job, RunOutcome& outcome) const {
  job.SetExit(ExitStatus());
  job.row.set_failed_rank(-1);
  job.row.clear_stderr_tail();
  job.row.set_failure_class(v1::FAILURE_CLASS_NONE);
  job.row.clear_causes();
  job.row.clear_reason();
  MoveJob(v1::JOB_STATE_SUCCEEDED, outcome);
}

void RunController::Fail(JobRecord& job, AttemptRecord& attempt,
                         RunOutcome& outcome) const {
  const FailureClass failure = ClassOf(attempt.cause, attempt.exit);
  job.row.set_reason(
      absl::StrCat("attempt ", attempt.number, ": ", attempt.detail));
  if (failure == v1::FAILURE_CLASS_NONE) {
    return MoveJob(v1::JOB_STATE_PENDING, outcome);
  }
  // Under ONE and NONE each end of a process was charged when it came.
  const bool is_charged =
      RunsOneByOne(job) && attempt.cause == v1::ATTEMPT_CAUSE_RANK_FAILED;
  const Verdict verdict = is_charged ? Verdict{.charged = true}
                                     : Charge(job, attempt.cause, failure,
                                              limits_.free_infra_restarts);
  attempt.causes.push_back(DescribeEnd(attempt));
  job.row.set_failure_class(failure);
  job.row.mutable_causes()->Assign(attempt.causes.begin(),
                                   attempt.causes.end());
  job.SetExit(attempt.exit);
  job.row.set_failed_rank(attempt.failed_rank);
  if (attempt.failed_rank < 0) job.row.clear_stderr_tail();  // of one before
  if (failure == v1::FAILURE_CLASS_TIMEOUT) job.row.set_reason(attempt.detail);
  if (failure == v1::FAILURE_CLASS_INFRA && verdict.charged) {
    absl::StrAppend(job.row.mutable_reason(), "; it started again ",
                    job.row.infra_restarts(),
                    " times after the loss of a node or keeper, which is the "
                    "most that --max-failures does not count");
  }
  if (attempt.cause == v1::ATTEMPT_CAUSE_PACKAGE_LOST) {
    job.row.add_causes("no attempt of it can start without its package");
  }
  const bool time_left = job.ran() < TimeLimitOf(*job.spec);
  if (verdict.charged && !verdict.again &&
      job.spec->run().restart() != v1::RESTART_POLICY_NONE) {
    job.row.add_causes(
        absl::StrCat("--max-failures ", job.spec->run().max_failures(),
                     is_charged ? " allows no other start of the rank"
                                : " allows no other attempt"));
  } else if (verdict.again && !time_left) {
    absl::StrAppend(job.row.mutable_reason(), "; its --time-limit of ",
                    absl::FormatDuration(TimeLimitOf(*job.spec)),
                    " is used up");
    job.row.add_causes("its --time-limit is used up");
  }
  MoveJob(
      verdict.again && time_left ? v1::JOB_STATE_PENDING : v1::JOB_STATE_FAILED,
      outcome);
}

}  // namespace cohort::head
