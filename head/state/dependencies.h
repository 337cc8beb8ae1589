#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/job_id.h"
#include "head/state/job_gate.h"
#include "head/state/job_table.h"
#include "head/store/records.h"

namespace cohort::head {

// Who waits for whom: `--after`.
//
//   DP-1: a job that waits for others starts, or ends FAILED, once they have
//         ended: never neither.
//
// A dependency is a job or an array; who waits is one too.  Ids come from the
// head, so a job names only what was there before it: there are no cycles.  A
// dependency that is not there any more was done when it was forgotten, because
// every job that it failed was ended in the same batch; and it is kept from
// being forgotten while somebody who named it has not ended.
//
// Belongs to JobGates.
class Dependencies final : public JobGate {
 public:
  // Why a dependency fails who waits for it.
  struct Broken {
    JobId who;  // a job or an array
    JobId dependency;
  };

  // `jobs` outlives it.
  explicit Dependencies(JobTable& jobs) : jobs_(jobs) {}

  WaitKind kind() const override { return v1::WAIT_KIND_AFTER; }
  void Added(const JobRecord& job) override;
  bool Pass(const JobRecord& job) override;
  void Ended(const JobRecord& job) override;
  std::vector<JobId> TakeOpened() override { return std::exchange(ready_, {}); }
  // It is told by when the others ended: the end of one does not change the
  // row of each who waited for it.
  bool Keeps(const JobRecord& /*job*/) const override { return false; }
  // "after ID, which is RUNNING".
  std::optional<Wait> WaitOf(const JobRecord& job) const override;
  Elements ElementsOf(const JobId& array, int64_t rest) const override;

  // Who waits for some of `ended` and for nobody else, and for which of them.
  std::map<JobId, std::vector<JobId>> KeptOnlyBy(
      const std::set<JobId>& ended) const;
  // What fails somebody, each of them once, one after the other; none: no more.
  std::optional<Broken> TakeBroken();
  bool HasBroken() const { return !to_tell_.empty(); }

 private:
  enum class Verdict { kOpen, kDone, kBroken };
  Verdict Judge(const JobId& dependency, DependencyKind kind) const;
  using Named = google::protobuf::RepeatedPtrField<Dependency>;
  // `who` has not ended and has `after`.
  void Add(const JobId& who, const Named& after);
  // It has ended: what it named may be forgotten.
  void Remove(const JobId& who);
  // A job, or the last element of an array, has ended.
  void Release(const JobId& dependency);
  void Break(const JobId& who, const JobId& dependency);

  JobTable& jobs_;
  std::vector<JobId> ready_;      // jobs that wait for nobody else any more
  std::map<JobId, Named> named_;  // by who has not ended
  std::map<JobId, std::map<JobId, DependencyKind>> waits_for_;  // open ones
  std::map<JobId, std::set<JobId>> waited_for_by_;
  std::map<JobId, JobId> broken_;  // the first that fails whom, until Remove
  std::set<JobId> to_tell_;        // of those
};

// The state of a job, or of an array as a whole; none when there is no such.
std::optional<JobState> StateOf(const JobTable& jobs, const JobId& id);

}  // namespace cohort::head
