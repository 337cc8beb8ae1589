#pragma once

#include <map>
#include <set>

#include "absl/time/time.h"

#include "common/clock.h"
#include "common/job_id.h"
#include "head/state/deadline_queue.h"

namespace cohort::head {

// When the metrics that ranks report are worth a row: the first at once, then
// at most one a period for each job, however often they report.
//
// Thread-compatible; belongs to ClusterState.  Holds nothing that a restart
// would miss.
class MetricsPace {
 public:
  // The clock outlives it.
  MetricsPace(absl::Duration period, const Clock& clock)
      : period_(period), clock_(clock) {}

  // `job` has newer metrics.  True: its row is to be stored now; else Due names
  // it once its period is over.
  bool Changed(const JobId& job);
  // Adds the jobs whose rows are to be stored now.
  void Due(std::set<JobId>& jobs);
  // The job has ended, which stores its row anyway.
  void Drop(const JobId& job) {
    stored_at_.erase(job);
    waiting_.Erase(job);
  }

 private:
  const absl::Duration period_;
  const Clock& clock_;
  std::map<JobId, absl::Duration> stored_at_;
  DeadlineQueue<JobId> waiting_;
};

}  // namespace cohort::head
