#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/job_id.h"
#include "head/state/array_places.h"
#include "head/state/deadlines.h"
#include "head/state/dependencies.h"
#include "head/state/hold_gate.h"
#include "head/state/job_gate.h"
#include "head/state/job_table.h"
#include "head/state/orphans.h"
#include "head/state/retry_backoff.h"
#include "head/state/secrets_gate.h"
#include "head/state/start_times.h"

namespace cohort::head {

// What a PENDING job passes before it stands in the waiting line: one gate
// after the other, and it waits at the first that is closed.
//
//   EL-1: a PENDING job stands in the waiting line exactly while no gate is
//         closed for it; which one keeps it is noted in the table of jobs.
//
// Rebuilt from rows: Added for each job that has not ended, then Pass for each
// PENDING one.  Thread-compatible; belongs to ClusterState.
class JobGates {
 public:
  // All of them outlive it.
  JobGates(JobTable& jobs, OrphanTable& orphans, Deadlines& deadlines,
           const Clock& clock, const SecretBox* box = nullptr)
      : jobs_(jobs),
        secrets_(jobs, box),
        after_(jobs),
        start_times_(deadlines, clock),
        array_(jobs),
        back_off_(deadlines, clock),
        gates_{&orphans,      &secrets_, &hold_,    &after_,
               &start_times_, &array_,   &back_off_} {}

  JobGates(const JobGates&) = delete;
  JobGates& operator=(const JobGates&) = delete;

  // As JobGate, of all of them.
  void Added(const JobRecord& job);
  bool Pass(const JobRecord& job);
  void Leave(const JobRecord& job);
  void Ended(const JobRecord& job);
  std::vector<JobId> TakeOpened();

  // PENDING jobs by the gate that keeps them, "held".
  std::map<std::string, int64_t> Counts() const;
  // The phase of a PENDING job.
  WaitKind PhaseOf(const JobRecord& job) const;
  // All that keeps it, not only what comes first.
  std::vector<Wait> WaitsOf(const JobRecord& job) const;
  // Of the `pending` elements of an array those that wait, by what for; those
  // that come soonest first.
  std::vector<std::pair<WaitKind, JobGate::Elements>> ElementsOf(
      const JobId& array, int64_t pending) const;

  const SecretsGate& secrets() const { return secrets_; }
  const HoldGate& hold() const { return hold_; }
  Dependencies& after() { return after_; }
  const Dependencies& after() const { return after_; }
  const StartTimes& start_times() const { return start_times_; }
  ArrayPlaces& array() { return array_; }
  const ArrayPlaces& array() const { return array_; }
  RetryBackoff& back_off() { return back_off_; }
  const RetryBackoff& back_off() const { return back_off_; }

 private:
  JobTable& jobs_;
  SecretsGate secrets_;
  HoldGate hold_;
  Dependencies after_;
  StartTimes start_times_;
  ArrayPlaces array_;
  RetryBackoff back_off_;
  const std::array<JobGate*, 7> gates_;  // in order
};

}  // namespace cohort::head
