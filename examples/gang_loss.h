#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "trainer/comm/comm.h"
#include "trainer/session.h"

namespace cohort::examples {

// The sum of all ranks' `sum` over that of their `count`.  Every rank calls it
// alike; errors are the communicator's.
absl::StatusOr<double> MeanOverGang(trainer::Comm& comm, double sum,
                                    double count);

// What all ranks know after a step.
struct GangStep {
  double loss = 0;  // the mean of theirs
  // A rank was told to be gone by a deadline: a checkpoint now saves the work.
  bool is_leaving = false;
};

// Every rank calls it alike; errors are the communicator's.
absl::StatusOr<GangStep> AgreeOnStep(trainer::Session& session, double loss);

// INTERNAL, with what to do about it, when the loss of `step` is no number.
absl::Status CheckLoss(double loss, int64_t step);

}  // namespace cohort::examples
