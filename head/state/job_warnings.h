#pragma once

#include <string>

#include "head/state/observed.h"
#include "head/state/run_controller.h"
#include "head/store/records.h"

namespace cohort::head {

// One more, each text once and 20 at most.  Whether it was added.
bool AddWarning(const std::string& text, JobRecord& job);

// In the warning of each node that took results of the job along.
inline constexpr char kLostWithNode[] = " is lost with the node";
// The first such one, and how many there are more; empty: there is none.
std::string LostResultsText(const JobRecord& job);

// Adds what a node warns of the job's files.  A pure part of RunController.
void TakeWarnings(const v1::ObservedPlace& observed,
                  const RunController::Limits& limits, JobRecord& job,
                  RunOutcome& outcome);

}  // namespace cohort::head
