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
      << attempt.id << " " << AttemptStateName(attempt.state) << " "
      << AttemptStateName(to);
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
    case GpuAbortLevel::kNone:
    case GpuAbortLevel::kRevoked:
      return "gpu_comm_revoked";
    case GpuAbortLevel::kAborted:
      return "gpu_comm_aborted";
    case GpuAbortLevel::kKilled:
      return "gpu_comm_killed";
  }
  return "gpu_comm_killed";
}

}  // namespace

const char* PreflightVerdictName(PreflightVerdict verdict) {
  switch (verdict) {
    case PreflightVerdict::kPassed:
      return "passed";
    case PreflightVerdict::kSlow:
      return "slow";
    case PreflightVerdict::kFailed:
      return "failed";
  }
  return "unknown";
}

const char* AttemptStateName(AttemptState state) {
  switch (state) {
    case AttemptState::kPreparing:
      return "PREPARING";
    case AttemptState::kRunning:
      return "RUNNING";
    case AttemptState::kEnding:
      return "ENDING";
    case AttemptState::kEnded:
      return "ENDED";
  }
  return "UNKNOWN";
}

const char* EndCauseName(EndCause cause) {
  switch (cause) {
    case EndCause::kNone:
      return "none";
    case EndCause::kSucceeded:
      return "succeeded";
    case EndCause::kRankFailed:
      return "rank_failed";
    case EndCause::kPrepareFailed:
      return "prepare_failed";
    case EndCause::kKeeperLost:
      return "keeper_lost";
    case EndCause::kNodeLost:
      return "node_lost";
    case EndCause::kStopped:
      return "stopped";
    case EndCause::kDaemonShutdown:
      return "daemon_shutdown";
    case EndCause::kTimeLimit:
      return "time_limit";
    case EndCause::kDrained:
      return "drained";
    case EndCause::kOrphan:
      return "orphan";
    case EndCause::kPackageLost:
      return "package_lost";
    case EndCause::kNodeFailed:
      return "node_failed";
    case EndCause::kDeviceFault:
      return "device_fault";
    case EndCause::kPreflightFailed:
      return "preflight_failed";
  }
  return "unknown";
}

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
               attempt.state != AttemptState::kEnded &&
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
  part->phase = PartPhase::kLost;
  outcome.attempt_changed = true;
  outcome.parts_over.push_back(node);
  SetCause(attempt,
           {.cause = EndCause::kNodeLost,
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
           {.cause = EndCause::kOrphan,
            .detail = "ended on request after the store was restored"},
           outcome);
  Advance(job, attempt, outcome);
  return outcome;
}

RunOutcome RunController::Stop(JobRecord& job, AttemptRecord& attempt) const {
  RunOutcome outcome;
  MoveJob(JobState::kStopping, outcome);
  SetCause(attempt,
           {.cause = EndCause::kStopped,
            .detail = "stopped on request",
            .facts = {"stopped on request"}},
           outcome);
  Advance(job, attempt, outcome);
  return outcome;
}

RunOutcome RunController::Evict(JobRecord& job, AttemptRecord& attempt,
                                absl::string_view why) const {
  COHORT_CHECK(attempt.state != AttemptState::kEnded) << attempt.id;
  RunOutcome outcome;
  SetCause(attempt,
           {.cause = EndCause::kDrained,
            .detail = std::string(why),
            .facts = {std::string(why)}},
           outcome);
  Advance(job, attempt, outcome);
  return outcome;
}

RunOutcome RunController::GiveWay(JobRecord& job, AttemptRecord& attempt,
                                  absl::string_view why) const {
  COHORT_CHECK(attempt.state == AttemptState::kPreparing) << attempt.id;
  RunOutcome outcome;
  SetCause(attempt,
           {.cause = EndCause::kNodeFailed,
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
    if (seen.state == RankState::kExited && seen.exit.has_value() &&
        !rank->exit.has_value()) {
      rank->exit = seen.exit;
      rank->exit->detail = Cut(seen.exit->detail, limits_.detail_bytes_max);
    }
    if (*rank != before) outcome.attempt_changed = true;
    const int order = seen.exit_order > 0 ? seen.exit_order
                                          : std::numeric_limits<int>::max() - 1;
    if (rank->exit.has_value() && !rank->exit->ok() && !seen.ended_by_order &&
        order < first_order) {
      first_failed = rank;
      first_order = order;
    }
  }
  // Once an attempt ends for another reason its ranks fail because of that.
  if (first_failed == nullptr || attempt.cause != EndCause::kNone) return;
  attempt.failed_rank = first_failed->rank;
  attempt.exit = first_failed->exit;
  SetCause(attempt,
           {.cause = EndCause::kRankFailed,
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
    if (seen.gpu_abort_level == GpuAbortLevel::kNone ||
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
  const ObservedPreflight& told = *observed.preflight;
  const bool failed = told.verdict == PreflightVerdict::kFailed;
  const std::string json =
      told.json.size() <= limits_.preflight_bytes_max ? told.json : "";
  if (job.preflight.has_value() && job.preflight->attempt == attempt.number) {
    Preflight& known = *job.preflight;
    // Several nodes tell of one failure, the one with rank 0 in full.
    if (known.json.empty() && !json.empty()) {
      known.json = json;
      outcome.job_changed = true;
    }
    if (!failed || known.verdict == PreflightVerdict::kFailed) return;
  }
  const std::string summary =
      Cut(OneLine(told.summary), limits_.detail_bytes_max);
  job.preflight = Preflight{.attempt = attempt.number,
                            .verdict = told.verdict,
                            .summary = summary,
                            .json = json};
  outcome.job_changed = true;
  outcome.preflight_told = true;
  outcome.notes.push_back({.kind = failed ? "preflight_failed"
                                   : told.verdict == PreflightVerdict::kSlow
                                       ? "preflight_slow"
                                       : "preflight_passed",
                           .text = summary});
  if (!failed) return;
  SetCause(attempt,
           {.cause = EndCause::kPreflightFailed,
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
  const bool begins_anew = observed.phase == ObservedPhase::kPreparing ||
                           observed.phase == ObservedPhase::kPrepared;
  if (begins_anew && part.phase == PartPhase::kRunning) {
    // Its daemon was put back to a time before it started them: alone and from
    // the beginning they would not be the gang's.
    ObservedAttempt missing = observed;
    missing.end = ObservedEnd::kMissing;
    missing.detail = "its node does not know its ranks any more";
    outcome.attempt_changed = true;
    return ApplyEnd(job, attempt, part, missing, outcome);
  }
  switch (observed.phase) {
    case ObservedPhase::kUnspecified:
    case ObservedPhase::kStarting:
      break;
    case ObservedPhase::kPreparing:
      // A restarted daemon prepares anew; the port that it had is gone.
      if (attempt.state == AttemptState::kPreparing) {
        part.phase = PartPhase::kAssigned;
        part.master_port = 0;
      }
      break;
    case ObservedPhase::kPrepared:
      if (attempt.state == AttemptState::kPreparing) {
        part.phase = PartPhase::kPrepared;
        part.master_port = observed.master_port;
      }
      break;
    case ObservedPhase::kRunning:
      // Nothing runs before the head said so.
      if (attempt.state != AttemptState::kPreparing) {
        part.phase = std::max(part.phase, PartPhase::kRunning);
      }
      break;
    case ObservedPhase::kEnded:
      ApplyEnd(job, attempt, part, observed, outcome);
      break;
  }
  if (part.phase != before.phase || part.master_port != before.master_port) {
    outcome.attempt_changed = true;
  }
}

void RunController::ApplyEnd(const JobRecord& job, AttemptRecord& attempt,
                             AttemptPart& part, const ObservedAttempt& observed,
                             RunOutcome& outcome) const {
  part.phase = observed.end == ObservedEnd::kMissing ? PartPhase::kLost
                                                     : PartPhase::kEnded;
  part.ran = std::clamp(observed.ran, absl::ZeroDuration(), kRanMax);
  outcome.parts_over.push_back(part.node);
  const std::string node = names_(part.node);
  const std::string detail = Cut(observed.detail, limits_.detail_bytes_max);
  const auto end = [&](EndCause why, absl::string_view otherwise) {
    EndReason reason{.cause = why,
                     .detail = detail.empty() ? std::string(otherwise) : detail,
                     .facts = {},
                     .part = &part};
    reason.facts = {absl::StrCat(node, ": ", reason.detail)};
    if (why == EndCause::kKeeperLost || why == EndCause::kNodeLost) {
      reason.facts.push_back(DescribeLoss(part, node));
    }
    SetCause(attempt, std::move(reason), outcome);
  };
  switch (observed.end) {
    case ObservedEnd::kPrepareFailed:
      return end(EndCause::kPrepareFailed, "it could not be prepared");
    case ObservedEnd::kPackageLost:
      return end(EndCause::kPackageLost, "the head does not have its package");
    case ObservedEnd::kNodeFailed:
      return end(EndCause::kNodeFailed, "its node could not begin it");
    case ObservedEnd::kDeviceFault:
      return end(EndCause::kDeviceFault, "a device of its ranks has a fault");
    case ObservedEnd::kKeeperLost:
      return end(EndCause::kKeeperLost, "its keeper died");
    case ObservedEnd::kMissing:
      return end(EndCause::kNodeLost, "its node knows nothing of it");
    case ObservedEnd::kDaemonShutdown:
      return end(EndCause::kDaemonShutdown, "its worker was shut down");
    case ObservedEnd::kTimeLimit:
      return ApplyTimeLimit(job, attempt, part, observed, outcome);
    case ObservedEnd::kUnspecified:
    case ObservedEnd::kExited:
      break;
  }
  if (attempt.state == AttemptState::kPreparing) {
    return end(EndCause::kPrepareFailed, "it ended before its ranks started");
  }
  for (const AttemptRank& rank : part.ranks) {
    if (rank.exit.has_value() && rank.exit->ok()) continue;
    return end(EndCause::kRankFailed,
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
           {.cause = EndCause::kTimeLimit,
            .detail = text,
            .facts = {absl::StrCat("it ", text, ", on ", names_(part.node))},
            .part = &part},
           outcome);
  if (attempt.cause != EndCause::kTimeLimit || attempt.failed_rank >= 0) return;
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
    attempt.exit->detail = Cut(seen.exit->detail, limits_.detail_bytes_max);
  }
}

void RunController::Advance(JobRecord& job, AttemptRecord& attempt,
                            RunOutcome& outcome) const {
  if (attempt.state == AttemptState::kPreparing &&
      attempt.cause == EndCause::kNone &&
      AllParts(attempt, PartPhase::kPrepared)) {
    for (const AttemptPart& part : attempt.parts) {
      if (HoldsRankZero(part)) attempt.master_port = part.master_port;
    }
    if (attempt.master_port <= 0 || attempt.master_port > 65535) {
      SetCause(attempt,
               {.cause = EndCause::kPrepareFailed,
                .detail = "rank 0's node reserved no port",
                .facts = {"rank 0's node reserved no port"}},
               outcome);
    } else {
      MoveAttempt(attempt, AttemptState::kRunning, outcome);
    }
  }
  if (attempt.state == AttemptState::kRunning &&
      attempt.cause == EndCause::kNone) {
    if (AllParts(attempt, PartPhase::kRunning) &&
        StateAfter(job, outcome) == JobState::kStarting) {
      MoveJob(JobState::kRunning, outcome);
    }
    if (AllOver(attempt)) {
      SetCause(attempt, {.cause = EndCause::kSucceeded}, outcome);
      return End(job, attempt, outcome);
    }
  }
  if (attempt.cause == EndCause::kNone) return;
  if (attempt.state == AttemptState::kPreparing ||
      attempt.state == AttemptState::kRunning) {
    MoveAttempt(attempt, AttemptState::kEnding, outcome);
  }
  if (AllOver(attempt)) End(job, attempt, outcome);
}

void RunController::End(JobRecord& job, AttemptRecord& attempt,
                        RunOutcome& outcome) const {
  MoveAttempt(attempt, AttemptState::kEnded, outcome);
  outcome.attempt_ended = true;
  outcome.job_changed = true;
  job.ran = std::min(job.ran + RanFor(attempt), kRanMax);
  if (StateAfter(job, outcome) == JobState::kStopping) {
    job.reason = "stopped on request";
    return MoveJob(JobState::kStopped, outcome);
  }
  if (attempt.cause == EndCause::kSucceeded) return Succeed(job, outcome);
  Fail(job, attempt, outcome);
}

void RunController::Succeed(JobRecord& job, RunOutcome& outcome) const {
  job.exit = ExitStatus{};
  job.failed_rank = -1;
  job.stderr_tail.clear();
  job.failure_class = FailureClass::kNone;
  job.causes.clear();
  job.reason.clear();
  MoveJob(JobState::kSucceeded, outcome);
}

void RunController::Fail(JobRecord& job, AttemptRecord& attempt,
                         RunOutcome& outcome) const {
  const FailureClass failure = ClassOf(attempt.cause, attempt.exit);
  job.reason = absl::StrCat("attempt ", attempt.number, ": ", attempt.detail);
  if (failure == FailureClass::kNone) {
    return MoveJob(JobState::kPending, outcome);
  }
  const Verdict verdict =
      Charge(job, attempt.cause, failure, limits_.free_infra_restarts);
  attempt.causes.push_back(DescribeEnd(attempt));
  job.failure_class = failure;
  job.causes = attempt.causes;
  job.exit = attempt.exit;
  job.failed_rank = attempt.failed_rank;
  if (attempt.failed_rank < 0) job.stderr_tail.clear();  // of one before
  if (failure == FailureClass::kTimeout) job.reason = attempt.detail;
  if (failure == FailureClass::kInfra && verdict.charged) {
    absl::StrAppend(&job.reason, "; it started again ", job.infra_restarts,
                    " times after the loss of a node or keeper, which is the "
                    "most that --max-failures does not count");
  }
  if (attempt.cause == EndCause::kPackageLost) {
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
  MoveJob(verdict.again && time_left ? JobState::kPending : JobState::kFailed,
          outcome);
}

}  // namespace cohort::head
