#pragma once

#include "absl/status/statusor.h"

#include "trainer/session.h"
#include "trainer/train/fit.h"
#include "trainer/train/result.h"

namespace cohort::train {

// Runs the request's loop in this rank, over the session of the job whose rank
// this process is, or, where it is none, alone in this process with
// checkpoints below the storage path or ./results.
//
// On a GPU DEADLINE_EXCEEDED ends the process with what it says before anything
// is destroyed: the usual reason is a GPU that does not answer, which would
// hold that, too.
absl::StatusOr<Result> RunInThisProcess(const FitRequest& request);

// What a driver tells the ranks that it starts, in this variable.
inline constexpr char kFitVariable[] = "COHORT_TRAIN";
absl::StatusOr<std::string> EncodeForRanks(const FitRequest& request);

}  // namespace cohort::train
