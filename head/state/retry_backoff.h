#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

#include "common/clock.h"
#include "common/job_id.h"
#include "head/store/records.h"

namespace cohort::head {

// No job waits longer between two attempts, as Kubernetes has it for containers
// that crash again and again.
inline constexpr absl::Duration kRetryDelayMax = absl::Minutes(5);

// The time between a charged failure and the next attempt: the spec's
// retry_delay after the first, twice as long after each further one, at most
// kRetryDelayMax.  Without jitter: a person can foretell it, and what starts
// again together does so through one head that places one after the other.
// REQUIRES: the job has been charged.
absl::Duration RetryDelay(const JobRecord& job);

// The same for a job whose attempt `last` has ended: zero when that was not
// charged.
absl::Duration RetryDelayAfter(const JobRecord& job, const AttemptRecord& last);

// Jobs that wait until their next attempt is due.
//
// Counts on the monotonic clock and keeps nothing in rows: after a start of the
// head a wait begins anew.  Thread-compatible; belongs to ClusterState.
class RetryBackoff {
 public:
  explicit RetryBackoff(const Clock& clock) : clock_(clock) {}

  // REQUIRES: `job` is not here.
  void Add(const JobId& job, absl::Duration delay);
  // Nothing when it does not wait.
  void Remove(const JobId& job);

  bool Waits(const JobId& job) const { return due_.contains(job); }
  size_t size() const { return due_.size(); }
  // Of the elements of an array those that wait, and the first of them.
  struct Elements {
    int64_t count = 0;
    std::optional<JobId> first;
  };
  Elements ElementsOf(const JobId& array) const;

  // Takes out those whose time has come, at most `max` of them, in the order in
  // which it came.
  std::vector<JobId> TakeDue(size_t max);

  // "attempt 2 starts in 4s"; empty when it does not wait.
  std::string ReasonOf(const JobRecord& job) const;

 private:
  const Clock& clock_;
  std::map<JobId, absl::Duration> due_;
  std::set<std::pair<absl::Duration, JobId>> order_;
};

}  // namespace cohort::head
