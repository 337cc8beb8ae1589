#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "trainer/comm/comm.h"

namespace cohort::trainer {

// Whether all ranks see the same directory at `root` and may write there; it is
// made when absent.  All ranks call it, and get the same answer:
// FailedPrecondition names those that do not; errors of the file system of rank
// 0, and of the communicator.  Nothing is left in it.
absl::Status CheckSharedStorage(Comm& comm, const std::string& root,
                                absl::Duration timeout);

}  // namespace cohort::trainer
