#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/job_id.h"
#include "head/dependencies.h"
#include "head/job_table.h"
#include "head/records.h"

namespace cohort::head {

// Whether a PENDING job may stand in the waiting line, else why not: it is
// held, others are to end first, or its array runs as many elements as it may.
//
//   EL-1: a PENDING job stands in the waiting line (or its back-off) exactly
//         while nothing of this keeps it.
//   EL-2: no array has more elements admitted at once than its `%N`: in line,
//         backing off or with an attempt; also after a restart.
//
// Rebuilt from rows: Added for each job that has not ended, then Admit for each
// PENDING one.  Thread-compatible; belongs to ClusterState.
class Eligibility {
 public:
  // `jobs` outlives it.
  explicit Eligibility(JobTable& jobs) : jobs_(jobs), dependencies_(jobs) {}

  // A job that is in the table and has not ended.
  void Added(const JobRecord& job);
  // Whether `job`, which is PENDING, may stand in line now; it is admitted
  // then, until it ends or Withdraw.  Otherwise TakeReady names it once it is
  // worth asking again, or TakeBroken.
  bool Admit(const JobRecord& job);
  // A PENDING job is held: it gives its place to another element.
  void Withdraw(const JobRecord& job);
  // It has ended.
  void Ended(const JobRecord& job);

  // Jobs that were not admitted and may be now, in order; those of them that
  // are PENDING are to be asked again.
  std::vector<JobId> TakeReady();
  // Jobs and arrays that can never run, because of what they waited for.
  std::vector<Dependencies::Broken> TakeBroken() {
    return dependencies_.TakeBroken();
  }

  // Why a PENDING job does not stand in line; empty when it does.
  std::string ReasonOf(const JobRecord& job) const;

 private:
  // The elements of an array with a limit.
  struct Slots {
    std::set<uint64_t> admitted;  // sequences
    std::set<uint64_t> waiting;
  };
  // None for jobs without a limit.
  Slots* SlotsOf(const JobRecord& job);
  const Slots* SlotsOf(const JobRecord& job) const;
  void GiveUp(const JobRecord& job);

  JobTable& jobs_;
  Dependencies dependencies_;
  std::map<JobId, Slots> arrays_;
  std::vector<JobId> ready_;
  std::set<JobId> freed_;  // arrays that may admit more
};

}  // namespace cohort::head
