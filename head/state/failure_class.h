#pragma once

#include <optional>

#include "head/store/records.h"

namespace cohort::head {

// Why an attempt failed, and what that costs.  Pure.
//
//   BG-1: each failed attempt is in exactly one class, is counted there once,
//         and is charged by that class's rule:
//
//   class      what                                  budget
//   user       exit code, signal, cannot be prepared --max-failures
//   oom        a rank was killed for memory          --max-failures
//   hang       no producer yet                       --max-failures
//   infra      node, device or keeper lost, a node   the first few are free,
//              could not begin, as with a full disk, then --max-failures
//              or the preflight failed
//   infra      the head lost its package             none: the job ends
//   preempted  its node was drained                  free
//   timeout    --time-limit                          none: the job ends

// The class of an attempt that ended for `cause`; `exit` is of the rank that
// failed first.  kNone when that is not a failure: it succeeded, a person
// stopped it, or its daemon took it along.
FailureClass ClassOf(AttemptCause cause, const std::optional<ExitStatus>& exit);

// Counts a failure of that class in `job`, charged or not.
void CountFailure(FailureClass failure, JobRecord& job);
// How many were counted.
int FailuresOf(const JobRecord& job, FailureClass failure);

struct Verdict {
  bool charged = false;  // to max_failures
  bool again = false;    // another attempt is due
};

// Counts an attempt that failed for `cause`, which is of class `failure`, in
// `job`'s budgets and says what follows.  REQUIRES: `failure` is not kNone.
Verdict Charge(JobRecord& job, AttemptCause cause, FailureClass failure,
               int free_infra_restarts);

// Whether the last failure of that class, which `job` has counted, was charged.
bool WasCharged(const JobRecord& job, FailureClass failure);

}  // namespace cohort::head
