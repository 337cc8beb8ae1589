#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "common/job_id.h"
#include "head/state/job_gate.h"
#include "head/state/job_table.h"
#include "head/store/records.h"

namespace cohort::head {

// The `%N` of arrays.
//
//   EL-2: no array has more elements admitted at once than its `%N`: past this
//         gate, or with an attempt; also after a restart.
//
// Belongs to JobGates.
class ArrayPlaces final : public JobGate {
 public:
  // `jobs` outlives it.
  explicit ArrayPlaces(const JobTable& jobs) : jobs_(jobs) {}

  WaitKind kind() const override { return v1::WAIT_KIND_ARRAY; }
  void Added(const JobRecord& job) override;
  // Who passes has a place until it ends or KeptBefore.
  bool Pass(const JobRecord& job) override;
  // Unless something of it runs, which keeps its place.
  void KeptBefore(const JobRecord& job) override;
  void Ended(const JobRecord& job) override;
  std::vector<JobId> TakeOpened() override;
  // Also while its array has given no places out yet, because all of it waits
  // for something else.
  bool Keeps(const JobRecord& job) const override;
  std::optional<Wait> WaitOf(const JobRecord& job) const override;
  Elements ElementsOf(const JobId& array, int64_t rest) const override;

  // Something of `job` runs although the head has not started it (OR-1): it has
  // a place, whatever the limit, until Vacate.  Gives the PENDING elements that
  // have lost theirs because of that.
  std::vector<JobId> Occupy(const JobRecord& job);
  // Nothing does any more, or it is an attempt as any other.
  void Vacate(const JobRecord& job);

  // The elements that come before `job`, which has no place.
  int64_t Before(const JobRecord& job) const;
  // Of an array with a limit, as what follows: how many elements have a place.
  int64_t AdmittedOf(const JobId& array) const;
  // The first `most` elements that get one next.
  std::vector<JobId> NextOf(const JobId& array, size_t most) const;
  // The first `most` elements that have one and do not wait.
  std::vector<JobId> RunningOf(const JobId& array, size_t most) const;

 private:
  // The elements of an array with a limit, by sequence.
  struct Slots {
    std::set<uint64_t> admitted;
    std::set<uint64_t> waiting;
    std::set<uint64_t> occupied;  // of the admitted ones
  };
  // Null for jobs without a limit.
  Slots* SlotsOf(const JobRecord& job);
  const Slots* SlotsOf(const JobRecord& job) const;
  void GiveUp(const JobRecord& job);

  const JobTable& jobs_;
  std::map<JobId, Slots> arrays_;
  std::set<JobId> freed_;  // arrays that may admit more
};

}  // namespace cohort::head
