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

// When the next attempts of jobs are due, and the jobs that wait for that.
//
// A time that has begun goes on while something else keeps its job, a hold or
// its array's limit.  Counts on the monotonic clock and keeps nothing in rows:
// after a start of the head it begins anew.  Thread-compatible; belongs to
// ClusterState.
class RetryBackoff {
 public:
  explicit RetryBackoff(const Clock& clock) : clock_(clock) {}

  // The next attempt of `job` is due in `delay`; one that has a time keeps it.
  void Begin(const JobId& job, absl::Duration delay);
  // The next attempt has begun, or there will be none.
  void Forget(const JobId& job);

  // Nothing but this keeps `job`: TakeDue gives it once its time has come.
  // False when it has come or there is none.  REQUIRES: `job` does not wait.
  bool Wait(const JobId& job);
  // Something else keeps it.  Nothing when it does not wait.
  void Leave(const JobId& job);

  bool Waits(const JobId& job) const;
  // That wait.
  size_t size() const { return order_.size(); }
  // Of the elements of an array those that wait, and the first of them.
  struct Elements {
    int64_t count = 0;
    std::optional<JobId> first;
  };
  Elements ElementsOf(const JobId& array) const;

  // Takes out those whose time has come, at most `max` of them, in the order in
  // which it came.
  std::vector<JobId> TakeDue(size_t max);

  // "attempt 2 starts in 4s"; of one that something else keeps too "attempt 2
  // is due in 4s"; empty when its time has come or there is none.
  std::string ReasonOf(const JobRecord& job) const;

 private:
  struct Pause {
    absl::Duration due;
    bool waits = false;
  };

  const Clock& clock_;
  std::map<JobId, Pause> pauses_;
  std::set<std::pair<absl::Duration, JobId>> order_;  // of those that wait
};

}  // namespace cohort::head
