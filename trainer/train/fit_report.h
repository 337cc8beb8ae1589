#pragma once

#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "client/cluster.h"
#include "common/job_id.h"
#include "common/real_clock.h"
#include "trainer/train/result.h"

namespace cohort::train {

// What a driver shows of its run while it waits, and what came of it.
//
// On a terminal one line that changes, below what rank 0 prints; else a line
// now and then.  Thread-compatible.
class FitReport {
 public:
  // The cluster outlives it.  Where it cannot grow, a run that can never start
  // is stopped.
  FitReport(Cluster& cluster, const JobId& job, std::string name,
            bool may_grow);

  // Says which job it is, and whether somebody else began it.
  void Begin(bool is_joined);
  // `callback` is given the metrics that Follow sees and the last ones.
  void OnMetrics(std::function<void(const Metrics&)> callback) {
    on_metrics_ = std::move(callback);
  }
  // Returns when the job has ended, or its log cannot be followed.
  void Follow();
  // `storage_path`: the spec's.
  Result End(const Job& ended, const std::string& storage_path);

 private:
  void Print(const LogChunk& chunk);
  void ShowProgress();
  void ClearLine();
  void TellMetrics(const Job& job);
  std::vector<HistoryRow> ReadHistory();
  void Warn(absl::string_view what);

  Cluster& cluster_;
  const JobId job_;
  const std::string name_;
  const bool may_grow_;
  const bool on_terminal_;
  std::string never_fits_;  // why, of a run that was stopped for it
  const MachineClock clock_;
  absl::Duration asked_at_ = -absl::InfiniteDuration();
  absl::Duration shown_at_ = -absl::InfiniteDuration();
  // When the job's progress was first seen, and how far it was then.
  absl::Duration begun_at_ = -absl::InfiniteDuration();
  double begun_progress_ = 0;
  std::string last_shown_;
  std::function<void(const Metrics&)> on_metrics_;
  int64_t told_reports_ = 0;
  bool line_is_shown_ = false;
};

// "step 512, loss 0.0312, 13010 samples/s", of a job's metrics; "" of none.
std::string ProgressText(absl::string_view metrics_json);

}  // namespace cohort::train
