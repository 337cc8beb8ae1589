#pragma once

#include "absl/status/status.h"

#include "trainer/comm/comm.h"
#include "trainer/comm/testing/device_copier.h"

// What a communicator of GPUs must do, as checks that each of its ranks makes
// at the same time: DATA_LOSS, or what a call answered, says what it did
// instead.  A rank that is a process of its own (gpu_comm_test) has no other
// way to say it than a status; comm_checks_test runs them over fakes, so that
// they are tried where there is no GPU.
namespace cohort::trainer {

// Sums, maxima, minima and averages of every type that has them, of a few
// sizes, over buffers of the host and of Allocate, one and several in a call;
// broadcasts from each rank; barriers.
absl::Status CheckCollectives(Comm& comm, DeviceCopier& copier);

// One shape again and again, as training does it: from the second call on it is
// launched before it is compared.
absl::Status CheckRepeats(Comm& comm, DeviceCopier& copier);

// Sizes that differ are INVALID_ARGUMENT on all ranks, buffers untouched, and
// the communicator goes on.  Worlds of 2 and more.
absl::Status CheckMismatch(Comm& comm);

// More memory than there is: RESOURCE_EXHAUSTED, and the communicator goes on.
absl::Status CheckTooMuchMemory(Comm& comm);

}  // namespace cohort::trainer
