#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "common/job_id.h"
#include "common/strong_id.h"
#include "head/store/records.h"

namespace cohort::head {

// All attempts that the head remembers: of each job the last ones.
//
//   JB-3: at most one attempt of a job is not ENDED.
//
// Thread-compatible; belongs to ClusterState.
class AttemptTable {
 public:
  // REQUIRES: its id is new, and every other attempt of its job has ENDED.
  void Add(AttemptRecord record);
  // REQUIRES: it is here.
  void Remove(const AttemptId& attempt);

  const AttemptRecord* Find(const AttemptId& attempt) const;
  // For everything but id, job, number and where its places are.
  AttemptRecord* FindMutable(const AttemptId& attempt);

  // Of a job, by number; null when it has none (any more).
  const AttemptRecord* OfJob(const JobId& job, int number) const;
  const AttemptRecord* LastOf(const JobId& job) const;
  // Ids in the order of their numbers.
  std::vector<AttemptId> AllOf(const JobId& job) const;

  // Attempts with a place on `node` that are not known to be ENDED; the caller
  // looks at their state.
  std::vector<AttemptId> OnNode(const NodeId& node) const;
  // The attempt has a place there now.
  void NotePlace(const AttemptId& attempt, const NodeId& node) {
    by_node_[node].insert(attempt);
  }
  // An attempt has ENDED: it is not asked for by node any more.
  void Retire(const AttemptId& attempt);

  // A person has ended it since a restore; it may have ENDED by that.
  void NoteEndedOrphan(const AttemptId& attempt);
  // Those for which IsEndedOrphan is true.
  const std::set<AttemptId>& ended_orphans() const { return ended_orphans_; }

  const std::map<AttemptId, AttemptRecord>& all() const { return attempts_; }
  // How many were removed since this table was made.
  uint64_t removed_count() const { return removed_count_; }

 private:
  std::map<AttemptId, AttemptRecord> attempts_;
  uint64_t removed_count_ = 0;
  std::map<JobId, std::map<int, AttemptId>> by_job_;
  std::map<NodeId, std::set<AttemptId>> by_node_;  // not retired
  std::set<AttemptId> ended_orphans_;              // not retired
};

// The place of `attempt` on `node`; null when it has none.
const Place* PlaceOn(const AttemptRecord& attempt, const NodeId& node);
Place* PlaceOn(AttemptRecord& attempt, const NodeId& node);

// The process in `slot` if it is of this incarnation; null otherwise.
Process* FindProcess(AttemptRecord& attempt, int slot, uint64_t incarnation);
// Whether the slot's process is, or was, on `node`.
bool IsOnNode(const AttemptRecord& attempt, int slot, const NodeId& node);

// The slots whose processes are there, over or not.
std::set<int> SlotsOn(const AttemptRecord& attempt, const NodeId& node);

// Nothing runs there any more, as far as the head will ever know.
inline bool IsOver(const Place& place) {
  return place.phase == v1::PLACE_PHASE_ENDED ||
         place.phase == v1::PLACE_PHASE_LOST;
}

// The incarnation that is a member of the present epoch; 0: nobody is, since
// the slot waits, or its process failed or is to go.  One that succeeded stays.
uint64_t MemberIncarnation(const Process& process);

// A slot of `attempt` is to be filled, now or after its back-off.
bool HasWaiting(const AttemptRecord& attempt);

// What the slot was given is its own: its process is not over, or it backs off
// before it is filled again.
bool HoldsRoom(const AttemptRecord& attempt, const Process& process);

// A person has ended it since a restore, and not all of its nodes have said
// that it is gone.
inline bool IsEndedOrphan(const AttemptRecord& attempt) {
  return attempt.cause == v1::ATTEMPT_CAUSE_ORPHAN &&
         attempt.state != v1::ATTEMPT_STATE_ENDED;
}

}  // namespace cohort::head
