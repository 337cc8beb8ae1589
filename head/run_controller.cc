#include "head/run_controller.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "common/log.h"
#include "head/attempt_table.h"
#include "head/reconciler.h"

namespace cohort::head {
namespace {

// At most `bytes_max` of `text`, not ending within a UTF-8 character: rows and
// messages refuse half ones.
std::string Cut(const std::string& text, size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  size_t end = bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) {
    --end;
  }
  return text.substr(0, end);
}

bool AllParts(const AttemptRecord& attempt, PartPhase at_least) {
  return std::all_of(
      attempt.parts.begin(), attempt.parts.end(),
      [&](const AttemptPart& part) { return part.phase >= at_least; });
}

bool AllOver(const AttemptRecord& attempt) {
  return std::all_of(attempt.parts.begin(), attempt.parts.end(), IsOver);
}

AttemptRank* FindRank(AttemptPart& part, int rank) {
  for (AttemptRank& candidate : part.ranks) {
    if (candidate.rank == rank) return &candidate;
  }
  return nullptr;
}

bool HasRank(const AttemptPart& part, int rank) {
  return FindRank(const_cast<AttemptPart&>(part), rank) != nullptr;
}

std::string Describe(int rank, const ExitStatus& exit) {
  std::string text = absl::StrCat("rank ", rank);
  if (exit.signal != 0) {
    absl::StrAppend(&text, " was killed by signal ", exit.signal);
  } else {
    absl::StrAppend(&text, " exited with code ", exit.code);
  }
  if (exit.oom_killed) absl::StrAppend(&text, " (out of memory)");
  if (!exit.detail.empty()) absl::StrAppend(&text, ": ", exit.detail);
  return text;
}

// The ranks of a gang fail when a sibling is taken from them, and their report
// may come first: the loss is the cause then.
bool ExplainsFailure(EndCause cause) {
  return cause == EndCause::kKeeperLost || cause == EndCause::kNodeLost ||
         cause == EndCause::kDaemonShutdown;
}

void SetCause(AttemptRecord& attempt, EndCause cause, std::string detail,
              RunOutcome& outcome) {
  const bool first = attempt.cause == EndCause::kNone;
  const bool explains =
      attempt.cause == EndCause::kRankFailed && ExplainsFailure(cause);
  if (!first && !explains) return;
  attempt.cause = cause;
  attempt.detail = std::move(detail);
  outcome.attempt_changed = true;
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

// CK-1's fence in the path itself: no two attempts share a directory.
bool IsBelowAttempt(const std::string& path, const AttemptRecord& attempt) {
  const std::string below =
      absl::StrCat("/attempt-", attempt.number, ".", attempt.epoch, "/");
  return absl::StartsWith(path, "/") && absl::StrContains(path, below) &&
         !absl::StrContains(path, "/../") && path.size() <= 4096;
}

}  // namespace

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
  }
  return "unknown";
}

AttemptRecord RunController::Begin(JobRecord& job, const AttemptId& id,
                                   const Plan& plan,
                                   std::string master_address) const {
  job.attempts += 1;
  job.epoch += 1;
  job.exit.reset();
  job.failed_rank = -1;
  job.stderr_tail.clear();
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
  ApplyRanks(attempt, *part, observed, outcome);
  ApplyTail(job, attempt, *part, observed, outcome);
  ApplyMetrics(job, *part, observed, outcome);
  ApplyCheckpoints(job, attempt, observed, outcome);
  ApplyRemoved(job, observed, outcome);
  ApplyPhase(attempt, *part, observed, outcome);
  Advance(job, attempt, outcome);
  return outcome;
}

RunOutcome RunController::ObserveAfterwards(
    JobRecord& job, const AttemptRecord& attempt, const NodeId& node,
    const ObservedAttempt& observed) const {
  RunOutcome outcome;
  const AttemptPart* part = PartOn(attempt, node);
  if (part == nullptr || attempt.number != job.attempts) return outcome;
  ApplyTail(job, attempt, *part, observed, outcome);
  ApplyRemoved(job, observed, outcome);
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
  SetCause(attempt, EndCause::kNodeLost, std::string(why), outcome);
  Advance(job, attempt, outcome);
  return outcome;
}

RunOutcome RunController::Stop(JobRecord& job, AttemptRecord& attempt) const {
  RunOutcome outcome;
  MoveJob(JobState::kStopping, outcome);
  SetCause(attempt, EndCause::kStopped, "stopped on request", outcome);
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
  SetCause(attempt, EndCause::kRankFailed,
           Describe(first_failed->rank, *first_failed->exit), outcome);
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

void RunController::ApplyCheckpoints(JobRecord& job,
                                     const AttemptRecord& attempt,
                                     const ObservedAttempt& observed,
                                     RunOutcome& outcome) const {
  for (const Checkpoint& checkpoint : observed.checkpoints) {
    outcome.acknowledged.push_back(checkpoint.path);
    if (checkpoint.epoch != attempt.epoch ||
        !IsBelowAttempt(checkpoint.path, attempt)) {
      COHORT_LOG(kWarning, "checkpoint_refused", {"attempt", attempt.id},
                 {"path", absl::CHexEscape(checkpoint.path)},
                 {"epoch", checkpoint.epoch});
      continue;
    }
    // Steps grow within an attempt: what is not newer is a repetition, perhaps
    // of one that was removed since.
    if (!job.checkpoints.empty() &&
        job.checkpoints.back().epoch == checkpoint.epoch &&
        job.checkpoints.back().step >= checkpoint.step) {
      continue;
    }
    job.checkpoints.push_back(checkpoint);
    outcome.job_changed = true;
    outcome.notes.push_back(
        {"checkpoint_committed",
         absl::StrCat("step ", checkpoint.step, ", ", checkpoint.path)});
  }
  const bool keep_all = job.spec.num_to_keep <= 0;
  const size_t keep = keep_all ? limits_.checkpoints_max
                               : static_cast<size_t>(job.spec.num_to_keep);
  while (job.checkpoints.size() > keep) {
    if (!keep_all && job.retired.size() < limits_.retired_max) {
      job.retired.push_back(job.checkpoints.front().path);
      outcome.retired_changed = true;
    }
    job.checkpoints.erase(job.checkpoints.begin());
  }
}

void RunController::ApplyRemoved(JobRecord& job,
                                 const ObservedAttempt& observed,
                                 RunOutcome& outcome) const {
  for (const std::string& path : observed.removed_checkpoints) {
    if (std::erase(job.retired, path) == 0) continue;
    outcome.job_changed = true;
    outcome.retired_changed = true;
  }
}

void RunController::ApplyPhase(AttemptRecord& attempt, AttemptPart& part,
                               const ObservedAttempt& observed,
                               RunOutcome& outcome) const {
  const AttemptPart before = part;
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
      ApplyEnd(attempt, part, observed, outcome);
      break;
  }
  if (part.phase != before.phase || part.master_port != before.master_port) {
    outcome.attempt_changed = true;
  }
}

void RunController::ApplyEnd(AttemptRecord& attempt, AttemptPart& part,
                             const ObservedAttempt& observed,
                             RunOutcome& outcome) const {
  const std::string detail = Cut(observed.detail, limits_.detail_bytes_max);
  const auto cause = [&](EndCause why, absl::string_view otherwise) {
    SetCause(attempt, why, detail.empty() ? std::string(otherwise) : detail,
             outcome);
  };
  part.phase = observed.end == ObservedEnd::kMissing ? PartPhase::kLost
                                                     : PartPhase::kEnded;
  outcome.parts_over.push_back(part.node);
  switch (observed.end) {
    case ObservedEnd::kPrepareFailed:
      return cause(EndCause::kPrepareFailed, "it could not be prepared");
    case ObservedEnd::kKeeperLost:
      return cause(EndCause::kKeeperLost, "its keeper died");
    case ObservedEnd::kMissing:
      return cause(EndCause::kNodeLost, "its node knows nothing of it");
    case ObservedEnd::kDaemonShutdown:
      return cause(EndCause::kDaemonShutdown, "its worker was shut down");
    case ObservedEnd::kUnspecified:
    case ObservedEnd::kExited:
      break;
  }
  if (attempt.state == AttemptState::kPreparing) {
    return cause(EndCause::kPrepareFailed, "it ended before its ranks started");
  }
  for (const AttemptRank& rank : part.ranks) {
    if (rank.exit.has_value() && rank.exit->ok()) continue;
    return cause(EndCause::kRankFailed,
                 absl::StrCat("rank ", rank.rank, " ended in an unknown way"));
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
      SetCause(attempt, EndCause::kPrepareFailed,
               "rank 0's node reserved no port", outcome);
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
      SetCause(attempt, EndCause::kSucceeded, "", outcome);
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
  if (StateAfter(job, outcome) == JobState::kStopping) {
    job.reason = "stopped on request";
    return MoveJob(JobState::kStopped, outcome);
  }
  if (attempt.cause == EndCause::kSucceeded) {
    job.exit = ExitStatus{};
    job.reason.clear();
    return MoveJob(JobState::kSucceeded, outcome);
  }
  job.exit = attempt.exit;
  job.failed_rank = attempt.failed_rank;
  Charge(job, attempt, outcome);
}

void RunController::Charge(JobRecord& job, const AttemptRecord& attempt,
                           RunOutcome& outcome) const {
  job.reason = absl::StrCat("attempt ", attempt.number, ": ", attempt.detail);
  if (attempt.cause == EndCause::kDaemonShutdown) {
    return MoveJob(JobState::kPending, outcome);
  }
  if (attempt.cause == EndCause::kKeeperLost ||
      attempt.cause == EndCause::kNodeLost) {
    if (job.infra_restarts < limits_.free_infra_restarts) {
      job.infra_restarts += 1;
      return MoveJob(JobState::kPending, outcome);
    }
    absl::StrAppend(&job.reason, "; it started again ", job.infra_restarts,
                    " times after the loss of a node or keeper, which is the "
                    "most that --max-failures does not count");
  }
  job.failures += 1;
  const bool budget_left =
      job.spec.max_failures < 0 || job.failures <= job.spec.max_failures;
  MoveJob(budget_left ? JobState::kPending : JobState::kFailed, outcome);
}

}  // namespace cohort::head
