#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/job_id.h"
#include "common/strong_id.h"
#include "head/state/observed.h"
#include "head/store/records.h"

namespace cohort::head {

// Attempts of an earlier generation of the store that nobody has spoken for:
// those that had not ended in the backup, and those that began after it, of
// which only the nodes know.
//
//   UN-1: nothing that runs is ended because a store was restored: these wait
//         for a person, and what nodes say of them is kept and not applied.
//   UN-2: no other attempt of their jobs begins meanwhile, nor before one that
//         a person ended is gone: its nodes said so, or are dead.
//
// Thread-compatible; belongs to ClusterState.
class UnclaimedTable {
 public:
  struct Entry {
    AttemptId attempt;
    JobId job;
    bool has_row = false;  // the store knows it
    // A person has ended it, and not all of its nodes have said that it is
    // gone.  Only without a row: with one it is an attempt as any other.
    bool ending = false;
    absl::Time since;
    std::set<NodeId> nodes;                  // by its row; empty without one
    std::map<NodeId, ObservedAttempt> seen;  // as last reported
    // Of those, whose full set came without it.
    std::set<NodeId> missing;
  };

  // What nodes may say of such attempts: one node, and all together.  A full
  // set comes in one message of at most 8 MiB, so that no sound node has more.
  static constexpr size_t kNodeBytesMax = 16 << 20;
  static constexpr size_t kBytesMax = size_t{1} << 30;
  static constexpr size_t kStrangersMax = 100'000;  // without rows

  // One that had not ended in the backup.
  void Add(const AttemptRecord& attempt);
  // ResourceExhausted, naming what is too much, when `reports` of `node` cannot
  // be kept.
  absl::Status CheckRoom(
      const NodeId& node,
      const std::vector<const ObservedAttempt*>& reports) const;
  // What `node` says of one.  True when it was not known yet.  REQUIRES:
  // CheckRoom was OK.
  bool Observe(const NodeId& node, const ObservedAttempt& observed,
               absl::Time now);
  // The full set of `node` has come, with `present` in it.  Gives the jobs of
  // those without rows that are nowhere any more and were forgotten.
  std::vector<JobId> NoteFullSet(const NodeId& node,
                                 const std::set<AttemptId>& present);
  // Gives it, which is then no longer unclaimed.  REQUIRES: it is here.
  Entry Take(const AttemptId& attempt);

  // A person ends it: it goes once NoteGone was said of each of its nodes.
  // REQUIRES: it is here and has no row.
  void MarkEnding(const AttemptId& attempt);
  // Nothing of an attempt that is ending is left on `node`.  Gives its job when
  // that was the last node and it was forgotten.
  std::optional<JobId> NoteGone(const NodeId& node, const AttemptId& attempt);
  // Attempts that are ending and were last seen on `node` too.
  std::vector<AttemptId> EndingOn(const NodeId& node) const;

  const Entry* Find(const AttemptId& attempt) const;
  // Of an array's elements, in their order.
  std::vector<const Entry*> OfArray(const JobId& array) const;
  // Null when the job may go on; otherwise one that it must wait for.
  const Entry* OfJob(const JobId& job) const;
  // As OfJob, but null for one that is ending while the job runs elsewhere.
  const Entry* KeepsBack(const JobRecord& job) const;
  const std::map<AttemptId, Entry>& all() const { return entries_; }
  bool HasStrangers() const { return strangers_ > 0; }

 private:
  // Whose row or report names the node.
  std::set<AttemptId> On(const NodeId& node) const;
  Entry& Insert(const AttemptId& attempt, const JobId& job);
  Entry Extract(std::map<AttemptId, Entry>::iterator at);
  // `node` says nothing of it any more.
  void DropReport(const NodeId& node, Entry& entry);
  // Unless its row or a report still names `node`.
  void LeaveNode(const NodeId& node, const Entry& entry);

  std::map<AttemptId, Entry> entries_;
  std::map<NodeId, std::set<AttemptId>> by_node_;
  std::map<JobId, std::set<AttemptId>> by_job_;
  size_t strangers_ = 0;               // without rows
  std::map<NodeId, size_t> bytes_of_;  // of what each node says
  size_t bytes_ = 0;
};

// RUNNING, PREPARED, ENDED; MISSING: its nodes do not know it any more; AWAY:
// not all of its nodes were heard of, or are here; ENDING: a person has ended
// it.  `nodes`: how many it is on; what those `away` said before does not
// count.
const char* StateOf(const UnclaimedTable::Entry& entry, size_t nodes,
                    const std::set<NodeId>& away = {});

// Why its job waits.
std::string UnclaimedReason(const UnclaimedTable::Entry& entry);

}  // namespace cohort::head
