#include "head/state/failure_class.h"

#include "common/check.h"

namespace cohort::head {

const char* FailureClassName(FailureClass failure) {
  switch (failure) {
    case FailureClass::kNone:
      return "none";
    case FailureClass::kUser:
      return "user";
    case FailureClass::kInfra:
      return "infra";
    case FailureClass::kPreempted:
      return "preempted";
    case FailureClass::kOom:
      return "oom";
    case FailureClass::kHang:
      return "hang";
    case FailureClass::kTimeout:
      return "timeout";
  }
  return "unknown";
}

FailureClass ClassOf(EndCause cause, const std::optional<ExitStatus>& exit) {
  switch (cause) {
    case EndCause::kNone:
    case EndCause::kSucceeded:
    case EndCause::kStopped:
    case EndCause::kDaemonShutdown:
    case EndCause::kOrphan:
      return FailureClass::kNone;
    case EndCause::kRankFailed:
      return exit.has_value() && exit->oom_killed ? FailureClass::kOom
                                                  : FailureClass::kUser;
    case EndCause::kPrepareFailed:
      return FailureClass::kUser;
    case EndCause::kKeeperLost:
    case EndCause::kNodeLost:
    case EndCause::kPackageLost:
    case EndCause::kNodeFailed:
    case EndCause::kDeviceFault:
    case EndCause::kPreflightFailed:
      return FailureClass::kInfra;
    case EndCause::kTimeLimit:
      return FailureClass::kTimeout;
    case EndCause::kDrained:
      return FailureClass::kPreempted;
  }
  return FailureClass::kUser;
}

Verdict Charge(JobRecord& job, EndCause cause, FailureClass failure,
               int free_infra_restarts) {
  COHORT_CHECK(failure != FailureClass::kNone) << job.id;
  job.failures_by_class[failure] += 1;
  if (failure == FailureClass::kTimeout || cause == EndCause::kPackageLost) {
    return {};
  }
  if (failure == FailureClass::kPreempted) return {.again = true};
  if (failure == FailureClass::kInfra &&
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
    case FailureClass::kUser:
    case FailureClass::kOom:
    case FailureClass::kHang:
      return true;
    case FailureClass::kInfra: {
      // The free ones come first.
      const auto counted = job.failures_by_class.find(failure);
      return counted != job.failures_by_class.end() &&
             counted->second > job.infra_restarts;
    }
    case FailureClass::kNone:
    case FailureClass::kPreempted:
    case FailureClass::kTimeout:
      return false;
  }
  return false;
}

}  // namespace cohort::head
