#include "head/state/failure_class.h"

#include <algorithm>

#include "common/check.h"

namespace cohort::head {

FailureClass ClassOf(AttemptCause cause,
                     const std::optional<ExitStatus>& exit) {
  switch (cause) {
    case v1::ATTEMPT_CAUSE_NONE:
    case v1::ATTEMPT_CAUSE_SUCCEEDED:
    case v1::ATTEMPT_CAUSE_STOPPED:
    case v1::ATTEMPT_CAUSE_DAEMON_SHUTDOWN:
    case v1::ATTEMPT_CAUSE_ORPHAN:
      return v1::FAILURE_CLASS_NONE;
    case v1::ATTEMPT_CAUSE_RANK_FAILED:
      return exit.has_value() && exit->oom_killed() ? v1::FAILURE_CLASS_OOM
                                                    : v1::FAILURE_CLASS_USER;
    case v1::ATTEMPT_CAUSE_PREPARE_FAILED:
      return v1::FAILURE_CLASS_USER;
    case v1::ATTEMPT_CAUSE_KEEPER_LOST:
    case v1::ATTEMPT_CAUSE_NODE_LOST:
    case v1::ATTEMPT_CAUSE_PACKAGE_LOST:
    case v1::ATTEMPT_CAUSE_NODE_FAILED:
    case v1::ATTEMPT_CAUSE_DEVICE_FAULT:
    case v1::ATTEMPT_CAUSE_PREFLIGHT_FAILED:
      return v1::FAILURE_CLASS_INFRA;
    case v1::ATTEMPT_CAUSE_TIME_LIMIT:
      return v1::FAILURE_CLASS_TIMEOUT;
    case v1::ATTEMPT_CAUSE_DRAINED:
      return v1::FAILURE_CLASS_PREEMPTED;
    default:
      return v1::FAILURE_CLASS_USER;
  }
}

void CountFailure(FailureClass failure, JobRecord& job) {
  auto& counts = *job.row.mutable_failures_by_class();
  const auto place = std::find_if(
      counts.begin(), counts.end(),
      [failure](const auto& each) { return each.failure_class() >= failure; });
  if (place != counts.end() && place->failure_class() == failure) {
    return place->set_count(place->count() + 1);
  }
  const auto index = place - counts.begin();
  v1::ClassCount& added = *counts.Add();
  added.set_failure_class(failure);
  added.set_count(1);
  std::rotate(counts.begin() + index, counts.end() - 1, counts.end());
}

int FailuresOf(const JobRecord& job, FailureClass failure) {
  for (const v1::ClassCount& each : job.row.failures_by_class()) {
    if (each.failure_class() == failure) return each.count();
  }
  return 0;
}

Verdict Charge(JobRecord& job, AttemptCause cause, FailureClass failure,
               int free_infra_restarts) {
  COHORT_CHECK(failure != v1::FAILURE_CLASS_NONE) << job.id;
  CountFailure(failure, job);
  if (failure == v1::FAILURE_CLASS_TIMEOUT ||
      cause == v1::ATTEMPT_CAUSE_PACKAGE_LOST) {
    return {};
  }
  if (failure == v1::FAILURE_CLASS_PREEMPTED) return {.again = true};
  if (failure == v1::FAILURE_CLASS_INFRA &&
      job.row.infra_restarts() < free_infra_restarts) {
    job.row.set_infra_restarts(job.row.infra_restarts() + 1);
    return {.again = true};
  }
  job.row.set_failures(job.row.failures() + 1);
  return {.charged = true,
          .again = job.spec->run().max_failures() < 0 ||
                   job.row.failures() <= job.spec->run().max_failures()};
}

bool WasCharged(const JobRecord& job, FailureClass failure) {
  switch (failure) {
    case v1::FAILURE_CLASS_USER:
    case v1::FAILURE_CLASS_OOM:
    case v1::FAILURE_CLASS_HANG:
      return true;
    case v1::FAILURE_CLASS_INFRA:
      // The free ones come first.
      return FailuresOf(job, failure) > job.row.infra_restarts();
    default:
      return false;
  }
}

}  // namespace cohort::head
