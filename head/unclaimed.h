#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/job_id.h"
#include "common/strong_id.h"
#include "head/observed.h"
#include "head/records.h"

namespace cohort::head {

// Attempts of an earlier generation of the store that nobody has spoken for:
// those that had not ended in the backup, and those that began after it, of
// which only the nodes know.
//
//   UN-1: nothing that runs is ended because a store was restored: these wait
//         for a person, and what nodes say of them is kept and not applied.
//   UN-2: no other attempt of their jobs begins meanwhile.
//
// Thread-compatible; belongs to ClusterState.
class UnclaimedTable {
 public:
  struct Entry {
    AttemptId attempt;
    JobId job;
    bool has_row = false;  // the store knows it
    absl::Time since;
    std::set<NodeId> nodes;                  // by its row; empty without one
    std::map<NodeId, ObservedAttempt> seen;  // as last reported
    // Of those, whose full set came without it.
    std::set<NodeId> missing;
  };

  // Those without rows; more are held where they are and not listed.
  static constexpr size_t kStrangersMax = 10'000;

  // One that had not ended in the backup.
  void Add(const AttemptRecord& attempt);
  // What `node` says of one.  True when it was not known yet.
  bool Observe(const NodeId& node, const ObservedAttempt& observed,
               absl::Time now);
  // The full set of `node` has come, with `present` in it.  Gives the jobs of
  // those without rows that are nowhere any more and were forgotten.
  std::vector<JobId> NoteFullSet(const NodeId& node,
                                 const std::set<AttemptId>& present);
  // Gives it, which is then no longer unclaimed.  REQUIRES: it is here.
  Entry Take(const AttemptId& attempt);

  const Entry* Find(const AttemptId& attempt) const;
  // Null when the job may go on; otherwise one that it must wait for.
  const Entry* OfJob(const JobId& job) const;
  const std::map<AttemptId, Entry>& all() const { return entries_; }

 private:
  Entry& Insert(const AttemptId& attempt, const JobId& job);
  Entry Extract(std::map<AttemptId, Entry>::iterator at);

  std::map<AttemptId, Entry> entries_;
  std::map<JobId, std::set<AttemptId>> by_job_;
  size_t strangers_ = 0;  // without rows
};

// RUNNING, PREPARED, ENDED; MISSING: its nodes do not know it any more; AWAY:
// not all of its nodes were heard of.  `nodes`: how many it is on.
const char* StateOf(const UnclaimedTable::Entry& entry, size_t nodes);

// Why its job waits.
std::string UnclaimedReason(const UnclaimedTable::Entry& entry);

// What an attempt holds of a node, by what was wanted of it there.
AttemptPart PartOf(const NodeId& node, const DesiredAttempt& wanted);

// The row of an attempt without one, as its nodes describe it.
// FailedPrecondition, saying what is missing, unless each of its nodes has.
absl::StatusOr<AttemptRecord> RecordOf(const UnclaimedTable::Entry& entry);

// The row of its job, as far as its nodes know it: they know no namespace,
// labels, or time limit.  REQUIRES: RecordOf gave a row.
JobRecord JobOf(const UnclaimedTable::Entry& entry);

}  // namespace cohort::head
