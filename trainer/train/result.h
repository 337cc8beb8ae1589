#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/job_id.h"
#include "trainer/session.h"
#include "trainer/train/history.h"

namespace cohort::train {

// What came of a run.  Ray Train's Result, in name and meaning.
struct Result {
  // The last value of each metric that was reported or evaluated.
  Metrics metrics;
  // Of all steps, as History keeps them; empty, with a line on stderr, when it
  // could not be read from where the run left it.
  std::vector<HistoryRow> metrics_history;
  // The last one committed.
  std::optional<trainer::CheckpointRecord> checkpoint;
  // Those with a score that are kept, the best first (RunConfig's
  // checkpoint_config).
  std::vector<trainer::CheckpointRecord> best_checkpoints;
  // The run's directory on its storage; empty: it left no checkpoint.
  std::string path;
  // Why it failed: which rank, and what that said.  OK: it did not.
  absl::Status error;
  // Nil where no job was made for it.
  JobId job;
};

// Why there is no trained model: Fit's error, or the run's.
inline absl::Status ErrorOf(const absl::StatusOr<Result>& result) {
  return result.ok() ? result->error : result.status();
}

}  // namespace cohort::train
