#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"

#include "common/job_id.h"
#include "common/strong_id.h"
#include "head/state/job_gate.h"
#include "head/state/observed.h"
#include "head/store/records.h"

namespace cohort::head {

// Orphans: attempts of an earlier generation of the store.  Those that had not
// ended in the backup have a row and wait for a person to adopt or end them.
// Those that began after it have none: only their nodes know of them, nobody
// can go on with them, and they stay until they end or a person ends them.
//
//   OR-1: nothing that runs is ended because a store was restored: what nodes
//         say of orphans is kept and not applied.
//   OR-2: no other attempt of their jobs begins meanwhile, nor before one that
//         a person ended is gone: its nodes said so, or are dead.
//
// Thread-compatible; belongs to ClusterState.
class OrphanTable final : public JobGate {
 public:
  WaitKind kind() const override { return v1::WAIT_KIND_ORPHAN; }
  bool Pass(const JobRecord& job) override { return !Keeps(job); }
  bool Keeps(const JobRecord& job) const override {
    return OfJob(job.id) != nullptr;
  }
  // Which attempt, and what a person may say of it.
  std::optional<Wait> WaitOf(const JobRecord& job) const override;

  // What one node said of an orphan.  Neither: nothing yet.
  struct Part {
    std::optional<v1::ObservedPlace> seen;  // without a row: how far it is
    bool missing = false;                   // its full set came without it
  };
  struct Entry {
    AttemptId attempt;
    JobId job;
    bool has_row = false;
    // A person has ended it, and not all of its nodes have said that it is
    // gone.  Only without a row: with one it is an attempt as any other.
    bool ending = false;
    absl::Time since;
    std::map<NodeId, Part> parts;  // by its row; without one, where it was seen
  };

  // One that had not ended in the backup.
  void Add(const AttemptRecord& attempt);
  // What `node` says of one.  True when it was not known yet, and so has no
  // row.
  bool Observe(const NodeId& node, const v1::ObservedPlace& observed,
               absl::Time now);
  // The full set of `node` has come, with `present` in it.  Gives the jobs of
  // those without rows that are nowhere any more and were forgotten.
  std::vector<JobId> NoteFullSet(const NodeId& node,
                                 const std::set<AttemptId>& present);
  // Gives it, which is then no orphan any more.  REQUIRES: it is here.
  Entry Take(const AttemptId& attempt);

  // A person ends it: it is removed after OnOrphanGone for each of its nodes.
  // REQUIRES: it is here and has no row.
  void MarkEnding(const AttemptId& attempt);
  // Nothing of it is left on `node`.  Gives its job when it had no row and that
  // was the last node, so that it was forgotten.
  std::optional<JobId> OnOrphanGone(const NodeId& node,
                                    const AttemptId& attempt);
  // Orphans that are ending and were last seen on `node` too.
  std::vector<AttemptId> EndingOn(const NodeId& node) const;

  const Entry* Find(const AttemptId& attempt) const;
  // Of an array's elements, in their order.
  std::vector<const Entry*> OfArray(const JobId& array) const;
  // Null when the job may go on; otherwise one that it must wait for.
  const Entry* OfJob(const JobId& job) const;
  // As OfJob, but null for one that is ending while the job runs elsewhere.
  const Entry* KeepsBack(const JobRecord& job) const;
  const std::map<AttemptId, Entry>& all() const { return entries_; }
  bool HasRowless() const { return rowless_ > 0; }

 private:
  Entry& Insert(const AttemptId& attempt, const JobId& job);
  Entry Extract(std::map<AttemptId, Entry>::iterator at);
  // With a part on the node.
  std::set<AttemptId> On(const NodeId& node) const;
  void LeaveNode(const NodeId& node, const AttemptId& attempt);

  std::map<AttemptId, Entry> entries_;
  std::map<NodeId, std::set<AttemptId>> by_node_;
  std::map<JobId, std::set<AttemptId>> by_job_;
  size_t rowless_ = 0;
};

// RUNNING, PREPARED, ENDED; MISSING: its nodes do not know it any more; AWAY:
// not all of its nodes were heard of, or are here; ENDING: a person has ended
// it.  What those `away` said before does not count.
const char* StateOf(const OrphanTable::Entry& entry,
                    const std::set<NodeId>& away = {});

// Why its job waits.
std::string OrphanReason(const OrphanTable::Entry& entry);

}  // namespace cohort::head
