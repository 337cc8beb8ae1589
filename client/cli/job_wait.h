#pragma once

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "client/cli/progress.h"
#include "client/cluster.h"

namespace cohort::cli {

// Waits until the job has ended, showing how it moves.  DeadlineExceeded after
// `timeout`, which may be zero: then it looks once; otherwise as Cluster::Get.
absl::StatusOr<Job> WaitForJob(const Cluster& cluster, const JobId& id,
                               absl::Duration timeout, Progress& progress);

// What a command that waited for `job` exits with: 0; the status of the rank
// that failed first, 128 and the signal where one ended it; 130 for a stopped
// job; 125 for one that failed without a rank's status.  REQUIRES: it has
// ended.
int ExitCodeOf(const Job& job);

// From now on Ctrl-C says on stderr that the job goes on and how to stop it,
// and then ends the program.
void SayOnInterrupt(const JobId& id);

}  // namespace cohort::cli
