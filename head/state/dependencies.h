#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/job_id.h"
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
// whoever it failed was ended in the same batch; and it is kept from being
// forgotten while somebody who named it has not ended.
//
// Thread-compatible; belongs to Eligibility, which rebuilds it from rows.
class Dependencies {
 public:
  // Why a dependency fails who waits for it.
  struct Broken {
    JobId who;  // a job or an array
    JobId dependency;
  };

  // `jobs` outlives it.
  explicit Dependencies(JobTable& jobs) : jobs_(jobs) {}

  // `who` has not ended and has `after`.
  using Named = google::protobuf::RepeatedPtrField<Dependency>;
  void Add(const JobId& who, const Named& after);
  // It has ended: what it named may be forgotten.
  void Remove(const JobId& who);
  // A job, or the last element of an array, has ended: gives who waited for
  // nothing else.
  std::vector<JobId> Ended(const JobId& dependency);

  bool Knows(const JobId& who) const { return named_.contains(who); }
  bool Waits(const JobId& who) const { return waits_for_.contains(who); }
  // Who waits for some of `ended` and for nobody else, and for which of them.
  std::map<JobId, std::vector<JobId>> KeptOnlyBy(
      const std::set<JobId>& ended) const;
  // Whether something fails `who`; TakeBroken names it again then.  For one
  // that could not be failed at once, because it was not waiting.
  bool RepeatIfBroken(const JobId& who);
  // What fails somebody, each of them once, one after the other; none: no more.
  std::optional<Broken> TakeBroken();
  bool HasBroken() const { return !to_tell_.empty(); }
  // "after ID, which is RUNNING"; empty when it does not wait.
  std::string ReasonOf(const JobId& who) const;

 private:
  enum class Verdict { kOpen, kDone, kBroken };
  Verdict Judge(const JobId& dependency, DependencyKind kind) const;
  void Break(const JobId& who, const JobId& dependency);

  JobTable& jobs_;
  std::map<JobId, Named> named_;  // by who has not ended
  std::map<JobId, std::map<JobId, DependencyKind>> waits_for_;  // open ones
  std::map<JobId, std::set<JobId>> waited_for_by_;
  std::map<JobId, JobId> broken_;  // the first that fails whom, until Remove
  std::set<JobId> to_tell_;        // of those
};

// The state of a job, or of an array as a whole; none when there is no such.
std::optional<JobState> StateOf(const JobTable& jobs, const JobId& id);

}  // namespace cohort::head
