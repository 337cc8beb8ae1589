#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/job_id.h"
#include "head/state/dependencies.h"
#include "head/state/job_table.h"
#include "head/store/records.h"

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
  // Something of `job` runs although the head has not started it (OR-1): it has
  // a place, whatever the limit, until Vacate.  Gives the PENDING elements that
  // are not admitted any more because of that.
  std::vector<JobId> Occupy(const JobRecord& job);
  // Nothing does any more, or it is an attempt as any other.
  void Vacate(const JobRecord& job);
  // It has ended.
  void Ended(const JobRecord& job);

  // Jobs that were not admitted and may be now, in order; those of them that
  // are PENDING are to be asked again.
  std::vector<JobId> TakeReady();
  // A job or array that can never run, because of what it waited for.
  std::optional<Dependencies::Broken> TakeBroken() {
    return dependencies_.TakeBroken();
  }
  bool HasBroken() const { return dependencies_.HasBroken(); }

  // Why a PENDING job does not stand in line; empty when it does.
  std::string ReasonOf(const JobRecord& job) const;

  // Whether its array has a limit and no place for it, or has given none out
  // yet because it waits for others.
  bool LacksPlace(const JobRecord& job) const;

  // All that keeps a PENDING job, not only what comes first.
  struct Kept {
    std::string held;   // by whom; empty: it is not
    std::string after;  // as ReasonOf says; empty: nothing
    // Its array has no place for it.
    bool at_limit = false;
    int64_t admitted = 0;  // elements, of at_limit
    std::optional<uint64_t> first_admitted;
    int64_t before = 0;  // elements that come into line before it
  };
  Kept KeptBy(const JobRecord& job) const;
  // The places of an array with a limit; none for one without.
  struct Places {
    int64_t limit = 0;
    int64_t admitted = 0;
    // Elements that come into line next, in order, at most `next_max`.
    std::vector<JobId> next;
    bool more = false;  // there are more
  };
  std::optional<Places> PlacesOf(const JobId& array, size_t next_max) const;
  // The first `most` elements of an array with a limit that have a place and
  // do not wait.
  std::vector<JobId> RunningOf(const JobId& array, size_t most) const;
  // Jobs and arrays that come into line once `ended` and nobody else has ended,
  // if they end as each is waited for; with those of them that each waits for.
  std::map<JobId, std::vector<JobId>> KeptOnlyBy(
      const std::set<JobId>& ended) const {
    return dependencies_.KeptOnlyBy(ended);
  }
  // Of the elements of an array that are PENDING: how many are kept by what,
  // each counted under the first of these.
  struct KeptElements {
    int64_t held = 0;
    int64_t after = 0;
    int64_t at_limit = 0;
    // In the order of sequences; none: there is none.
    std::optional<uint64_t> first_held;
    std::optional<uint64_t> first_at_limit;
  };
  KeptElements KeptOf(const JobId& array) const;

 private:
  // The elements of an array with a limit.
  struct Slots {
    std::set<uint64_t> admitted;  // sequences
    std::set<uint64_t> waiting;
    std::set<uint64_t> occupied;  // of the admitted ones
  };
  // None for jobs without a limit.
  Slots* SlotsOf(const JobRecord& job);
  const Slots* SlotsOf(const JobRecord& job) const;
  void GiveUp(const JobRecord& job);
  void NoteHeld(const JobRecord& job, bool held);

  JobTable& jobs_;
  Dependencies dependencies_;
  std::map<JobId, Slots> arrays_;
  // Of arrays: the sequences of elements that are held.
  std::map<JobId, std::set<uint64_t>> held_;
  std::vector<JobId> ready_;
  std::set<JobId> freed_;  // arrays that may admit more
};

}  // namespace cohort::head
