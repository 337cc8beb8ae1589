#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "trainer/comm/comm.h"

namespace cohort::examples {

// The sum of all ranks' `sum` over that of their `count`.  Every rank calls it
// alike; errors are the communicator's.
absl::StatusOr<double> MeanOverGang(trainer::Comm& comm, double sum,
                                    double count);

// INTERNAL, with what to do about it, when the loss of `step` is no number.
absl::Status CheckLoss(double loss, int64_t step);

}  // namespace cohort::examples
