#include "head/state/failure_class.h"

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

Verdict Charge(JobRecord& job, AttemptCause cause, FailureClass failure,
               int free_infra_restarts) {
  COHORT_CHECK(failure != v1::FAILURE_CLASS_NONE) << job.id;
  job.failures_by_class[failure] += 1;
  if (failure == v1::FAILURE_CLASS_TIMEOUT ||
      cause == v1::ATTEMPT_CAUSE_PACKAGE_LOST) {
    return {};
  }
  if (failure == v1::FAILURE_CLASS_PREEMPTED) return {.again = true};
  if (failure == v1::FAILURE_CLASS_INFRA &&
      job.infra_restarts < free_infra_restarts) {
    job.infra_restarts += 1;
    return {.again = true};
  }
  job.failures += 1;
  return {.charged = true,
          .again = job.spec->run().max_failures() < 0 ||
                   job.failures <= job.spec->run().max_failures()};
}

bool WasCharged(const JobRecord& job, FailureClass failure) {
  switch (failure) {
    case v1::FAILURE_CLASS_USER:
    case v1::FAILURE_CLASS_OOM:
    case v1::FAILURE_CLASS_HANG:
      return true;
    case v1::FAILURE_CLASS_INFRA: {
      // The free ones come first.
      const auto counted = job.failures_by_class.find(failure);
      return counted != job.failures_by_class.end() &&
             counted->second > job.infra_restarts;
    }
    default:
      return false;
  }
}

}  // namespace cohort::head
