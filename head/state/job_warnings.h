#pragma once

#include "head/state/observed.h"
#include "head/state/run_controller.h"
#include "head/store/records.h"

namespace cohort::head {

// Adds what a node warns of the job's files to its row, each text once and the
// first 20 of them.  A pure part of RunController.
void TakeWarnings(const v1::ObservedPlace& observed,
                  const RunController::Limits& limits, JobRecord& job,
                  RunOutcome& outcome);

}  // namespace cohort::head
