#pragma once

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/status_macros.h"
#include "examples/run_options.h"
#include "trainer/local_session.h"
#include "trainer/session.h"
#include "trainer/worker_session.h"

namespace cohort::examples {

// Refuses what a rank's session decides, rather than to leave it unheard.
inline absl::Status CheckRankOptions(const SessionOptions& options) {
  if (!options.storage_path.empty()) {
    return absl::InvalidArgumentError(
        "--storage-path is for runs by hand: give it to cohort submit, before "
        "the --");
  }
  if (!options.restore.empty()) {
    return absl::InvalidArgumentError(
        "--restore is for runs by hand: a job of cohort goes on from its own "
        "last checkpoint");
  }
  return absl::OkStatus();
}

// A rank of a gang when a worker daemon started this process, else alone.
inline absl::StatusOr<std::unique_ptr<trainer::Session>> OpenSession(
    const SessionOptions& options, bool can_use_gpu = false) {
  if (trainer::IsRank()) {
    COHORT_RETURN_IF_ERROR(CheckRankOptions(options));
    COHORT_ASSIGN_OR_RETURN(trainer::WorkerSessionOptions rank,
                            trainer::WorkerSessionFromEnvironment());
    rank.can_use_gpu = can_use_gpu;
    return trainer::WorkerSession::Join(std::move(rank));
  }
  return trainer::LocalSession::Create(
      {.storage_path =
           options.storage_path.empty() ? "results" : options.storage_path,
       .restore = options.restore});
}

}  // namespace cohort::examples
