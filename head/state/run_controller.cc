#include "head/state/run_controller.h"

#include <algorithm>
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
#include "head/state/reconciler.h"
#include "head/store/enum_text.h"

namespace cohort::head {
namespace {

// Of what nodes say; longer is no time that a job can have run.
constexpr absl::Duration kRanMax = absl::Hours(24 * 365 * 100);

bool AllParts(const AttemptRecord& attempt, PartPhase at_least) {
  return std::all_of(
      attempt.parts.begin(), attempt.parts.end(),
      [&](const AttemptPart& part) { return part.phase >= at_least; });
}

bool AllOver(const AttemptRecord& attempt) {
  return std::all_of(attempt.parts.begin(), attempt.parts.end(), IsOver);
}

void SetCause(AttemptRecord& attempt, EndReason reason, RunOutcome& outcome) {
  if (GiveReason(std::move(reason), attempt)) outcome.attempt_changed = true;
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
  return outcome.job_moves.empty() ? job.state : outcome.job_moves.back();
}

void MoveJob(JobState to, RunOutcome& outcome) {
  outcome.job_moves.push_back(to);
  outcome.job_changed = true;
}

// How long the attempt ran: as long as its longest part.  What a node did not
// live to tell is not counted.
absl::Duration RanFor(const AttemptRecord& attempt) {
  absl::Duration ran;
  for (const AttemptPart& part : attempt.parts) ran = std::max(ran, part.ran);
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

}  // namespace

AttemptRecord RunController::Begin(JobRecord& job, const AttemptId& id,
                                   const Plan& plan,
                                   std::string master_address) const {
  job.attempts += 1;
  job.epoch += 1;
  // What the last failure was is told until the next one, or success.
  job.reason.clear();
  job.metrics_count = 0;  // ranks count their reports anew

  AttemptRecord attempt;
  attempt.id = id;
  attempt.job = job.id;
  attempt.number = job.attempts;
  attempt.epoch = job.epoch;
  attempt.master_address = std::move(master_address);
  attempt.origin = job.origin;
  for (const PlannedPart& planned : plan.parts) {
    AttemptPart part;
    part.node = planned.node;
    part.resources = planned.resources;
    part.devices = planned.devices;
    for (const PlannedRank& rank : planned.ranks) {
      AttemptRank& added = part.ranks.emplace_back();
      added.rank = rank.rank;
      added.local_rank = rank.local_rank;
      for (const auto& [device, amount] : rank.devices) {
        added.gpu_ids.push_back(device);
      }
    }
    attempt.parts.push_back(std::move(part));
  }
  return attempt;
}

RunOutcome RunController::Observe(JobRecord& job, AttemptRecord& attempt,
                                  const NodeId& node,
                                  const ObservedAttempt& observed) const {
  AttemptPart* part = PartOn(attempt, node);
  COHORT_CHECK(part != nullptr && !IsOver(*part) &&
               attempt.state != v1::ATTEMPT_STATE_ENDED &&
               attempt.number == job.attempts)
      << attempt.id;
  RunOutcome outcome;
  const int failed_before = attempt.failed_rank;
  ApplyPreflight(job, attempt, *part, observed, outcome);
  ApplyGpuEnds(attempt, *part, observed, outcome);
  ApplyRanks(attempt, *part, observed, outcome);
  ApplyMetrics(job, *part, observed, outcome);
  TakeCheckpoints(observed, attempt, limits_, job, outcome);
  TakeRemoved(observed, job, outcome);
  ApplyPhase(job, attempt, *part, observed, outcome);
  if (attempt.failed_rank != failed_before && !job.stderr_tail.empty()) {
    job.stderr_tail.clear();  // of the failure before
    outcome.job_changed = true;
  }
  ApplyTail(job, attempt, *part, observed, outcome);
  Advance(job, attempt, outcome);
  return outcome;
}

RunOutcome RunController::ObserveAfterwards(
    JobRecord& job, const AttemptRecord& attempt, const AttemptRecord& latest,
    const NodeId& node, const ObservedAttempt& observed) const {
  RunOutcome outcome;
  const AttemptPart* part = PartOn(attempt, node);
  if (part == nullptr) return outcome;
  const bool is_latest = attempt.number == job.attempts;
  // Last words come after the state: the next attempt may have begun.  The job
  // tells of the last failure, which is this one's until that one fails.
  const bool is_last_failure = attempt.number + 1 == job.attempts &&
                               latest.failed_rank < 0 &&
                               job.failed_rank == attempt.failed_rank;
  if (is_latest || is_last_failure) {
    ApplyTail(job, attempt, *part, observed, outcome);
  }
  if (is_latest) TakeRemoved(observed, job, outcome);
  return outcome;
}

RunOutcome RunController::LosePart(JobRecord& job, AttemptRecord& attempt,
                                   const NodeId& node,
                                   absl::string_view why) const {
  AttemptPart* part = PartOn(attempt, node);
  COHORT_CHECK(part != nullptr && !IsOver(*part)) << attempt.id;
  RunOutcome outcome;
  part->phase = v1::PART_PHASE_LOST;
  outcome.attempt_changed = true;
  outcome.parts_over.push_back(node);
  SetCause(attempt,
           {.cause = v1::ATTEMPT_CAUSE_NODE_LOST,
            .detail = std::string(why),
            .facts = {std::string(why), DescribeLoss(*part, names_(node))},
            .part = part},
           outcome);
  Advance(job, attempt, outcome);
  return outcome;
}

RunOutcome RunController::EndOrphan(JobRecord& job,
                                    AttemptRecord& attempt) const {
  RunOutcome outcome;
  SetCause(attempt,
           {.cause = v1::ATTEMPT_CAUSE_ORPHAN,
            .detail = "ended on request after the store was restored"},
           outcome);
  Advance(job, attempt, outcome);
  return outcome;
}

RunOutcome RunController::Stop(JobRecord& job, AttemptRecord& attempt) const {
  RunOutcome outcome;
  MoveJob(v1::JOB_STATE_STOPPING, outcome);
  SetCause(attempt,
           {.cause = v1::ATTEMPT_CAUSE_STOPPED,
            .detail = "stopped on request",
            .facts = {"stopped on request"}},
           outcome);
  Advance(job, attempt, outcome);
  return outcome;
}

RunOutcome RunController::Evict(JobRecord& job, AttemptRecord& attempt,
                                absl::string_view why) const {
  COHORT_CHECK(attempt.state != v1::ATTEMPT_STATE_ENDED) << attempt.id;
  RunOutcome outcome;
  SetCause(attempt,
           {.cause = v1::ATTEMPT_CAUSE_DRAINED,
            .detail = std::string(why),
            .facts = {std::string(why)}},
           outcome);
  Advance(job, attempt, outcome);
  return outcome;
}

RunOutcome RunController::GiveWay(JobRecord& job, AttemptRecord& attempt,
                                  absl::string_view why) const {
  COHORT_CHECK(attempt.state == v1::ATTEMPT_STATE_PREPARING) << attempt.id;
  RunOutcome outcome;
  SetCause(attempt,
           {.cause = v1::ATTEMPT_CAUSE_NODE_FAILED,
            .detail = std::string(why),
            .facts = {std::string(why)}},
           outcome);
  Advance(job, attempt, outcome);
  return outcome;
}

void RunController::ApplyRanks(AttemptRecord& attempt, AttemptPart& part,
                               const ObservedAttempt& observed,
                               RunOutcome& outcome) const {
  const AttemptRank* first_failed = nullptr;
  int first_order = std::numeric_limits<int>::max();
  for (const ObservedRank& seen : observed.ranks) {
    AttemptRank* rank = FindRank(part, seen.rank);
    if (rank == nullptr) continue;
    const AttemptRank before = *rank;
    rank->state = std::max(rank->state, seen.state);
    if (seen.pid > 0) rank->pid = seen.pid;
    if (seen.state == v1::RANK_STATE_EXITED && seen.exit.has_value() &&
        !rank->exit.has_value()) {
      rank->exit = seen.exit;
      rank->exit->set_detail(
          Cut(seen.exit->detail(), limits_.detail_bytes_max));
    }
    if (*rank != before) outcome.attempt_changed = true;
    const int order = seen.exit_order > 0 ? seen.exit_order
                                          : std::numeric_limits<int>::max() - 1;
    if (rank->exit.has_value() && !EndedWell(*rank->exit) &&
        !seen.ended_by_order && order < first_order) {
      first_failed = rank;
      first_order = order;
    }
  }
  // Once an attempt ends for another reason its ranks fail because of that.
  if (first_failed == nullptr || attempt.cause != v1::ATTEMPT_CAUSE_NONE)
    return;
  attempt.failed_rank = first_failed->rank;
  attempt.exit = first_failed->exit;
  SetCause(attempt,
           {.cause = v1::ATTEMPT_CAUSE_RANK_FAILED,
            .detail = DescribeExit(first_failed->rank, "", *attempt.exit),
            .facts = {DescribeExit(first_failed->rank, names_(part.node),
                                   *attempt.exit)},
            .part = &part},
           outcome);
}

// One event for each abort level of an attempt, by the first rank that told of
// it: all ranks of a gang climb together.
void RunController::ApplyGpuEnds(AttemptRecord& attempt,
                                 const AttemptPart& part,
                                 const ObservedAttempt& observed,
                                 RunOutcome& outcome) const {
  for (const ObservedRank& seen : observed.ranks) {
    const uint32_t bit = uint32_t{1} << static_cast<int>(seen.gpu_abort_level);
    if (seen.gpu_abort_level == v1::GPU_ABORT_LEVEL_UNSPECIFIED ||
        (attempt.gpu_abort_levels & bit) != 0 || !HasRank(part, seen.rank)) {
      continue;
    }
    attempt.gpu_abort_levels |= bit;
    outcome.attempt_changed = true;
    outcome.notes.push_back(
        {.kind = KindOf(seen.gpu_abort_level),
         .text = absl::StrCat(
             "rank ", seen.rank, ": ",
             Cut(OneLine(seen.gpu_why), limits_.detail_bytes_max))});
  }
}

void RunController::ApplyTail(JobRecord& job, const AttemptRecord& attempt,
                              const AttemptPart& part,
                              const ObservedAttempt& observed,
                              RunOutcome& outcome) const {
  if (observed.stderr_tail.empty() || !job.stderr_tail.empty() ||
      attempt.failed_rank < 0 || !HasRank(part, attempt.failed_rank)) {
    return;
  }
  job.stderr_tail = Cut(observed.stderr_tail, limits_.stderr_bytes_max);
  outcome.job_changed = true;
}

void RunController::ApplyMetrics(JobRecord& job, const AttemptPart& part,
                                 const ObservedAttempt& observed,
                                 RunOutcome& outcome) const {
  for (const MetricsReport& report : observed.metrics) {
    // As Ray: rank 0 speaks for the run.
    if (report.rank != 0 || !HasRank(part, 0)) continue;
    if (report.count <= job.metrics_count ||
        report.json.size() > limits_.metrics_bytes_max) {
      continue;
    }
    job.metrics_json = report.json;
    job.metrics_count = report.count;
    outcome.metrics_changed = true;
  }
}

void RunController::ApplyPreflight(JobRecord& job, AttemptRecord& attempt,
                                   const AttemptPart& part,
                                   const ObservedAttempt& observed,
                                   RunOutcome& outcome) const {
  if (!job.spec->run().preflight() || !observed.preflight.has_value()) return;
  v1::PreflightReport told = *observed.preflight;
  const bool failed = told.verdict() == v1::PREFLIGHT_VERDICT_FAILED;
  if (told.json().size() > limits_.preflight_bytes_max) told.clear_json();
  if (job.preflight.has_value() && job.preflight->attempt() == attempt.number) {
    v1::PreflightReport& known = *job.preflight->mutable_report();
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
  job.preflight.emplace().set_attempt(attempt.number);
  *job.preflight->mutable_report() = told;
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
            .part = &part},
           outcome);
}

void RunController::ApplyPhase(const JobRecord& job, AttemptRecord& attempt,
                               AttemptPart& part,
                               const ObservedAttempt& observed,
                               RunOutcome& outcome) const {
  const AttemptPart before = part;
  const bool begins_anew = observed.phase == v1::PHASE_PREPARING ||
                           observed.phase == v1::PHASE_PREPARED;
  if (begins_anew && part.phase == v1::PART_PHASE_RUNNING) {
    // Its daemon was put back to a time before it started them: alone and from
    // the beginning they would not be the gang's.
    ObservedAttempt missing = observed;
    missing.end = v1::END_CAUSE_MISSING;
    missing.detail = "its node does not know its ranks any more";
    outcome.attempt_changed = true;
    return ApplyEnd(job, attempt, part, missing, outcome);
  }
  switch (observed.phase) {
    case v1::PHASE_PREPARING:
      // A restarted daemon prepares anew; the port that it had is gone.
      if (attempt.state == v1::ATTEMPT_STATE_PREPARING) {
        part.phase = v1::PART_PHASE_ASSIGNED;
        part.master_port = 0;
      }
      break;
    case v1::PHASE_PREPARED:
      if (attempt.state == v1::ATTEMPT_STATE_PREPARING) {
        part.phase = v1::PART_PHASE_PREPARED;
        part.master_port = observed.master_port;
      }
      break;
    case v1::PHASE_RUNNING:
      // Nothing runs before the head said so.
      if (attempt.state != v1::ATTEMPT_STATE_PREPARING) {
        part.phase = std::max(part.phase, v1::PART_PHASE_RUNNING);
      }
      break;
    case v1::PHASE_ENDED:
      ApplyEnd(job, attempt, part, observed, outcome);
      break;
    default:
      break;
  }
  if (part.phase != before.phase || part.master_port != before.master_port) {
    outcome.attempt_changed = true;
  }
}

void RunController::ApplyEnd(const JobRecord& job, AttemptRecord& attempt,
                             AttemptPart& part, const ObservedAttempt& observed,
                             RunOutcome& outcome) const {
  part.phase = observed.end == v1::END_CAUSE_MISSING ? v1::PART_PHASE_LOST
                                                     : v1::PART_PHASE_ENDED;
  part.ran = std::clamp(observed.ran, absl::ZeroDuration(), kRanMax);
  outcome.parts_over.push_back(part.node);
  const std::string node = names_(part.node);
  const std::string detail = Cut(observed.detail, limits_.detail_bytes_max);
  const auto end = [&](AttemptCause why, absl::string_view otherwise) {
    EndReason reason{.cause = why,
                     .detail = detail.empty() ? std::string(otherwise) : detail,
                     .facts = {},
                     .part = &part};
    reason.facts = {absl::StrCat(node, ": ", reason.detail)};
    if (why == v1::ATTEMPT_CAUSE_KEEPER_LOST ||
        why == v1::ATTEMPT_CAUSE_NODE_LOST) {
      reason.facts.push_back(DescribeLoss(part, node));
    }
    SetCause(attempt, std::move(reason), outcome);
  };
  switch (observed.end) {
    case v1::END_CAUSE_PREPARE_FAILED:
      return end(v1::ATTEMPT_CAUSE_PREPARE_FAILED, "it could not be prepared");
    case v1::END_CAUSE_PACKAGE_LOST:
      return end(v1::ATTEMPT_CAUSE_PACKAGE_LOST,
                 "the head does not have its package");
    case v1::END_CAUSE_NODE_FAILED:
      return end(v1::ATTEMPT_CAUSE_NODE_FAILED, "its node could not begin it");
    case v1::END_CAUSE_DEVICE_FAULT:
      return end(v1::ATTEMPT_CAUSE_DEVICE_FAULT,
                 "a device of its ranks has a fault");
    case v1::END_CAUSE_KEEPER_LOST:
      return end(v1::ATTEMPT_CAUSE_KEEPER_LOST, "its keeper died");
    case v1::END_CAUSE_MISSING:
      return end(v1::ATTEMPT_CAUSE_NODE_LOST, "its node knows nothing of it");
    case v1::END_CAUSE_DAEMON_SHUTDOWN:
      return end(v1::ATTEMPT_CAUSE_DAEMON_SHUTDOWN, "its worker was shut down");
    case v1::END_CAUSE_TIME_LIMIT:
      return ApplyTimeLimit(job, attempt, part, observed, outcome);
    default:
      break;
  }
  if (attempt.state == v1::ATTEMPT_STATE_PREPARING) {
    return end(v1::ATTEMPT_CAUSE_PREPARE_FAILED,
               "it ended before its ranks started");
  }
  for (const AttemptRank& rank : part.ranks) {
    if (rank.exit.has_value() && EndedWell(*rank.exit)) continue;
    return end(v1::ATTEMPT_CAUSE_RANK_FAILED,
               absl::StrCat("rank ", rank.rank, " ended in an unknown way"));
  }
}

void RunController::ApplyTimeLimit(const JobRecord& job, AttemptRecord& attempt,
                                   const AttemptPart& part,
                                   const ObservedAttempt& observed,
                                   RunOutcome& outcome) const {
  const std::string text =
      absl::StrCat("ran for ", absl::FormatDuration(TimeLimitOf(*job.spec)),
                   ", its --time-limit");
  SetCause(attempt,
           {.cause = v1::ATTEMPT_CAUSE_TIME_LIMIT,
            .detail = text,
            .facts = {absl::StrCat("it ", text, ", on ", names_(part.node))},
            .part = &part},
           outcome);
  if (attempt.cause != v1::ATTEMPT_CAUSE_TIME_LIMIT || attempt.failed_rank >= 0)
    return;
  // No rank failed; how the first of them ended is kept with its last words.
  int first_order = std::numeric_limits<int>::max();
  for (const ObservedRank& seen : observed.ranks) {
    if (!seen.exit.has_value() || seen.exit_order >= first_order ||
        !HasRank(part, seen.rank)) {
      continue;
    }
    first_order = seen.exit_order;
    attempt.failed_rank = seen.rank;
    attempt.exit = seen.exit;
    attempt.exit->set_detail(
        Cut(seen.exit->detail(), limits_.detail_bytes_max));
  }
}

void RunController::Advance(JobRecord& job, AttemptRecord& attempt,
                            RunOutcome& outcome) const {
  if (attempt.state == v1::ATTEMPT_STATE_PREPARING &&
      attempt.cause == v1::ATTEMPT_CAUSE_NONE &&
      AllParts(attempt, v1::PART_PHASE_PREPARED)) {
    for (const AttemptPart& part : attempt.parts) {
      if (HoldsRankZero(part)) attempt.master_port = part.master_port;
    }
    if (attempt.master_port <= 0 || attempt.master_port > 65535) {
      SetCause(attempt,
               {.cause = v1::ATTEMPT_CAUSE_PREPARE_FAILED,
                .detail = "rank 0's node reserved no port",
                .facts = {"rank 0's node reserved no port"}},
               outcome);
    } else {
      MoveAttempt(attempt, v1::ATTEMPT_STATE_RUNNING, outcome);
    }
  }
  if (attempt.state == v1::ATTEMPT_STATE_RUNNING &&
      attempt.cause == v1::ATTEMPT_CAUSE_NONE) {
    if (AllParts(attempt, v1::PART_PHASE_RUNNING) &&
        StateAfter(job, outcome) == v1::JOB_STATE_STARTING) {
      MoveJob(v1::JOB_STATE_RUNNING, outcome);
    }
    if (AllOver(attempt)) {
      SetCause(attempt, {.cause = v1::ATTEMPT_CAUSE_SUCCEEDED}, outcome);
      return End(job, attempt, outcome);
    }
  }
  if (attempt.cause == v1::ATTEMPT_CAUSE_NONE) return;
  if (attempt.state == v1::ATTEMPT_STATE_PREPARING ||
      attempt.state == v1::ATTEMPT_STATE_RUNNING) {
    MoveAttempt(attempt, v1::ATTEMPT_STATE_ENDING, outcome);
  }
  if (AllOver(attempt)) End(job, attempt, outcome);
}

void RunController::End(JobRecord& job, AttemptRecord& attempt,
                        RunOutcome& outcome) const {
  MoveAttempt(attempt, v1::ATTEMPT_STATE_ENDED, outcome);
  outcome.attempt_ended = true;
  outcome.job_changed = true;
  job.ran = std::min(job.ran + RanFor(attempt), kRanMax);
  if (StateAfter(job, outcome) == v1::JOB_STATE_STOPPING) {
    job.reason = "stopped on request";
    return MoveJob(v1::JOB_STATE_STOPPED, outcome);
  }
  if (attempt.cause == v1::ATTEMPT_CAUSE_SUCCEEDED)
    return Succeed(job, outcome);
  Fail(job, attempt, outcome);
}

void RunController::Succeed(JobRecord& job, RunOutcome& outcome) const {
  job.exit = ExitStatus{};
  job.failed_rank = -1;
  job.stderr_tail.clear();
  job.failure_class = v1::FAILURE_CLASS_NONE;
  job.causes.clear();
  job.reason.clear();
  MoveJob(v1::JOB_STATE_SUCCEEDED, outcome);
}

void RunController::Fail(JobRecord& job, AttemptRecord& attempt,
                         RunOutcome& outcome) const {
  const FailureClass failure = ClassOf(attempt.cause, attempt.exit);
  job.reason = absl::StrCat("attempt ", attempt.number, ": ", attempt.detail);
  if (failure == v1::FAILURE_CLASS_NONE) {
    return MoveJob(v1::JOB_STATE_PENDING, outcome);
  }
  const Verdict verdict =
      Charge(job, attempt.cause, failure, limits_.free_infra_restarts);
  attempt.causes.push_back(DescribeEnd(attempt));
  job.failure_class = failure;
  job.causes = attempt.causes;
  job.exit = attempt.exit;
  job.failed_rank = attempt.failed_rank;
  if (attempt.failed_rank < 0) job.stderr_tail.clear();  // of one before
  if (failure == v1::FAILURE_CLASS_TIMEOUT) job.reason = attempt.detail;
  if (failure == v1::FAILURE_CLASS_INFRA && verdict.charged) {
    absl::StrAppend(&job.reason, "; it started again ", job.infra_restarts,
                    " times after the loss of a node or keeper, which is the "
                    "most that --max-failures does not count");
  }
  if (attempt.cause == v1::ATTEMPT_CAUSE_PACKAGE_LOST) {
    job.causes.push_back("no attempt of it can start without its package");
  }
  const bool time_left = job.ran < TimeLimitOf(*job.spec);
  if (verdict.charged && !verdict.again) {
    job.causes.push_back(absl::StrCat("--max-failures ",
                                      job.spec->run().max_failures(),
                                      " allows no other attempt"));
  } else if (verdict.again && !time_left) {
    absl::StrAppend(&job.reason, "; nothing is left of its --time-limit ",
                    absl::FormatDuration(TimeLimitOf(*job.spec)));
    job.causes.push_back("nothing is left of its --time-limit");
  }
  MoveJob(
      verdict.again && time_left ? v1::JOB_STATE_PENDING : v1::JOB_STATE_FAILED,
      outcome);
}

}  // namespace cohort::head
