#pragma once

#include "head/state/observed.h"
#include "head/state/run_controller.h"
#include "head/store/records.h"

namespace cohort::head {

// A job's checkpoints, as its row has them: the committed ones, and those whose
// directories are still to be removed.  CK-1's fence; pure parts of
// RunController.

// Commits what `observed` brings of `attempt`, the job's last, and retires what
// is beyond num_to_keep.
void TakeCheckpoints(const v1::ObservedPlace& observed,
                     const AttemptRecord& attempt,
                     const RunController::Limits& limits, JobRecord& job,
                     RunOutcome& outcome);

// Directories that are gone.
void TakeRemoved(const v1::ObservedPlace& observed, JobRecord& job,
                 RunOutcome& outcome);

}  // namespace cohort::head
