#include "head/state/reconciler.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "head/state/attempt_table.h"
#include "head/state/job_spec.h"

namespace cohort::head {
namespace {

// An attempt that should not have begun ends at once.
constexpr absl::Duration kTimeLimitMin = absl::Milliseconds(1);

// The last one committed before the attempt: what it wrote itself is newer than
// its start.
std::optional<Checkpoint> RestoreOf(const JobRecord& job,
                                    const AttemptRecord& attempt) {
  for (auto it = job.checkpoints.rbegin(); it != job.checkpoints.rend(); ++it) {
    if (it->epoch() < attempt.epoch) return *it;
  }
  return std::nullopt;
}

absl::Duration GraceBeforeKill(const JobRecord& job,
                               const AttemptRecord& attempt) {
  switch (attempt.cause) {
    case v1::ATTEMPT_CAUSE_STOPPED:
    case v1::ATTEMPT_CAUSE_TIME_LIMIT:
    case v1::ATTEMPT_CAUSE_DRAINED:
    case v1::ATTEMPT_CAUSE_ORPHAN:
      return GraceOf(*job.spec);
    default:
      return kSiblingGrace;
  }
}

int NodeRankOf(const AttemptRecord& attempt, const AttemptPart& part) {
  for (size_t i = 0; i < attempt.parts.size(); ++i) {
    if (attempt.parts[i].node == part.node) return static_cast<int>(i);
  }
  COHORT_CHECK(false) << "no part on " << part.node;
  return 0;
}

}  // namespace

bool HoldsRankZero(const AttemptPart& part) {
  for (const AttemptRank& rank : part.ranks) {
    if (rank.rank == 0) return true;
  }
  return false;
}

std::string EndReasonOf(const AttemptRecord& attempt) {
  return attempt.detail.empty() ? "it has ended" : attempt.detail;
}

Goal GoalOf(const JobRecord& job, const AttemptRecord& attempt,
            const AttemptPart& part) {
  if (part.phase == v1::PART_PHASE_ENDED && attempt.number == job.attempts &&
      HoldsRankZero(part) && !job.retired.empty()) {
    return v1::GOAL_STOP;
  }
  if (IsOver(part)) return v1::GOAL_FORGET;
  switch (attempt.state) {
    case v1::ATTEMPT_STATE_PREPARING:
      return v1::GOAL_PREPARE;
    case v1::ATTEMPT_STATE_RUNNING:
      return v1::GOAL_RUN;
    case v1::ATTEMPT_STATE_ENDING:
      return v1::GOAL_STOP;
    default:
      return v1::GOAL_FORGET;
  }
}

DesiredAttempt DesiredFor(const JobRecord& job, const AttemptRecord& attempt,
                          const AttemptPart& part) {
  const Goal goal = GoalOf(job, attempt, part);
  if (goal == v1::GOAL_FORGET) {
    return ForgetOf(attempt.id, job.id, EndReasonOf(attempt));
  }

  DesiredAttempt desired;
  desired.attempt = attempt.id;
  desired.job = job.id;
  desired.number = attempt.number;
  desired.epoch = attempt.epoch;
  desired.goal = goal;
  desired.job_name = job.spec->name();
  const v1::Launch& launch = job.spec->launch();
  desired.command.assign(launch.command().begin(), launch.command().end());
  desired.environment.insert(launch.environment().begin(),
                             launch.environment().end());
  desired.package_hash = launch.package_hash();
  desired.preflight = job.spec->run().preflight();
  for (const AttemptRank& rank : part.ranks) {
    desired.ranks.push_back({rank.rank, rank.local_rank, rank.gpu_ids});
  }
  desired.world_size = job.spec->scaling().num_workers();
  desired.node_rank = NodeRankOf(attempt, part);
  desired.node_count = static_cast<int>(attempt.parts.size());
  desired.holds_rank_zero = HoldsRankZero(part);
  desired.resources_per_rank = ResourcesPerWorker(*job.spec);
  desired.storage_path = job.spec->run().storage_path();
  desired.restore = RestoreOf(job, attempt);
  desired.max_failures = job.spec->run().max_failures();
  if (goal == v1::GOAL_RUN) {
    desired.master_address = attempt.master_address;
    desired.master_port = attempt.master_port;
    // The same throughout the attempt: `ran` grows at its end.
    desired.time_limit =
        std::max(TimeLimitOf(*job.spec) - job.ran, kTimeLimitMin);
    desired.grace = GraceOf(*job.spec);
  }
  if (desired.holds_rank_zero) desired.retired_checkpoints = job.retired;
  if (goal == v1::GOAL_STOP) {
    desired.grace = GraceBeforeKill(job, attempt);
    desired.reason = EndReasonOf(attempt);
  }
  return desired;
}

DesiredAttempt ForgetOf(const AttemptId& attempt, const JobId& job,
                        std::string reason) {
  DesiredAttempt desired;
  desired.attempt = attempt;
  desired.job = job;
  desired.goal = v1::GOAL_FORGET;
  desired.reason = std::move(reason);
  return desired;
}

}  // namespace cohort::head
