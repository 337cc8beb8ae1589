#pragma once

#include <map>
#include <optional>

#include "absl/time/time.h"

#include "common/clock.h"
#include "common/job_id.h"
#include "head/state/deadlines.h"
#include "head/state/job_gate.h"
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
// The same after so many failures; zero after none.
absl::Duration RetryDelay(const JobSpec& spec, int failures);

// The same for a job whose attempt `last` has ended: zero when that was not
// charged.
absl::Duration RetryDelayAfter(const JobRecord& job, const AttemptRecord& last);

// When the next attempts of jobs are due, and the jobs that wait for that.
//
// A time that has begun goes on while something else keeps its job, a hold or
// its array's limit.  Counts on the monotonic clock and keeps nothing in rows:
// after a start of the head it begins again.  Belongs to JobGates.
class RetryBackoff final : public JobGate {
 public:
  // Both outlive it.
  RetryBackoff(Deadlines& deadlines, const Clock& clock)
      : deadlines_(deadlines), clock_(clock) {}

  WaitKind kind() const override { return v1::WAIT_KIND_BACK_OFF; }
  bool Pass(const JobRecord& job) override;
  void Leave(const JobRecord& job) override { deadlines_.Erase(DueOf(job.id)); }
  bool Keeps(const JobRecord& job) const override {
    return deadlines_.Contains(DueOf(job.id));
  }
  // "attempt 2 starts in 4s"; of one that something else keeps too "attempt 2
  // is due in 4s".
  std::optional<Wait> WaitOf(const JobRecord& job) const override;
  Elements ElementsOf(const JobId& array, int64_t /*rest*/) const override {
    return ElementsIn(deadlines_, DueKind::kBackOff, array);
  }

  // The next attempt of `job` is due in `delay`; one that has a time keeps it.
  void Begin(const JobId& job, absl::Duration delay);
  // The next attempt has begun, or there will be none.
  void Forget(const JobId& job);

 private:
  static Due DueOf(const JobId& job) { return {DueKind::kBackOff, AskId{job}}; }

  Deadlines& deadlines_;  // has those that nothing else keeps
  const Clock& clock_;
  std::map<JobId, absl::Duration> due_;
};

}  // namespace cohort::head
