#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "common/clock.h"
#include "common/strong_id.h"
#include "head/state/cluster_state.h"
#include "head/store/memory_store.h"
#include "head/store/store.h"

// What must hold of a head whatever happened to it.  Each check gives the first
// violation, beginning with the invariant's number, or nothing; so that a test
// can show on a doctored state that it bites.
namespace cohort::sim {

// Of a state at any time: PL-1 (gangs are whole), PL-2 (no device and no amount
// is held twice), PL-4 (every rank where its job may be), EL-1 (held jobs do
// not run), EL-2 (arrays keep to their limit), DP-1 (order of jobs), JB-2
// (budgets), JB-3 (one attempt), CK-1 (checkpoints), HI-1 (history's caps),
// BD-1 (no decision has many rows).
std::string CheckState(const head::ClusterState& state);

// Whether all that `dependency` names have ended as it wants.
bool IsMet(const head::ClusterState& state, const head::Dependency& dependency);

// Of an ended job, JB-2: each attempt is accounted for exactly once; BG-1: in
// one class; TL-1: a time limit fires once and ends the job.  `is_whole`: the
// store that tells it saw all of its attempts.
std::string CheckBudget(const head::JobRecord& job, bool is_whole);

// RS-1: what a restart would find is what is: every row, and what is derived
// from them (holds, indexes, line), of `state`, all of which is durable.
// `clock` and `limits` are the head's.
std::string CheckRebuilt(const head::ClusterState& state,
                         head::MemoryDisk& disk,
                         const head::ClusterLimits& limits, const Clock& clock);

// What the disk went through: JB-1 (no job leaves the state that it ended in,
// none goes), TM-1 (terms grow), AT-1 (no attempt comes back to life).
class DurableHistory {
 public:
  // A batch that is durable now.
  std::string OnDurable(const head::Batch& batch);
  // These are all rows now, and older than those before; terms grow all the
  // same, unless they are just an older copy.
  std::string OnRestored(const head::Batch& rows, bool as_a_copy);

 private:
  std::string OnJob(const head::Write& write);
  std::string OnAttempt(const head::Write& write);

  uint64_t term_ = 0;
  // Ended ones, with their states.
  std::map<std::string, head::JobState> ended_jobs_;
  std::set<std::string> ended_attempts_;
};

}  // namespace cohort::sim
