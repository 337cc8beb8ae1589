#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "common/job_id.h"
#include "head/records.h"

namespace cohort::head {

// PENDING, as text: people and wire names agree.
const char* JobStateName(JobState state);

constexpr bool HasEnded(JobState state) {
  return state == JobState::kSucceeded || state == JobState::kFailed ||
         state == JobState::kStopped;
}

// The edges of a job's life, drawn in docs/design/0001-first-light.md.
//
//   JB-1: each job ends, in exactly one of SUCCEEDED, FAILED, STOPPED, and
//         never leaves it.
constexpr bool MayMove(JobState from, JobState to) {
  switch (from) {
    case JobState::kPending:
      return to == JobState::kStarting || to == JobState::kStopped;
    case JobState::kStarting:
      return to == JobState::kRunning || to == JobState::kStopping ||
             to == JobState::kPending || to == JobState::kFailed;
    case JobState::kRunning:
      return to == JobState::kSucceeded || to == JobState::kStopping ||
             to == JobState::kPending || to == JobState::kFailed;
    case JobState::kStopping:
      return to == JobState::kStopped;
    case JobState::kSucceeded:
    case JobState::kFailed:
    case JobState::kStopped:
      return false;
  }
  return false;
}

// All jobs that the head remembers.
//
// Thread-compatible; belongs to ClusterState, which alone moves jobs.
class JobTable {
 public:
  // REQUIRES: its id and sequence are new.
  void Add(JobRecord record);
  // Moves a job along an edge.  REQUIRES: the job is here, and MayMove.
  void Move(const JobId& job, JobState to);
  // REQUIRES: the job is here and has ended.
  void Remove(const JobId& job);

  const JobRecord* Find(const JobId& job) const;
  // For everything but state, id and sequence.
  JobRecord* FindMutable(const JobId& job);

  size_t size() const { return jobs_.size(); }
  int64_t CountOf(JobState state) const {
    return counts_[static_cast<size_t>(state)];
  }
  int64_t ended_count() const;

  // The ended job that was submitted first.
  std::optional<JobId> OldestEnded() const;

  // By order of submission.
  const std::map<uint64_t, JobId>& by_sequence() const { return by_sequence_; }

 private:
  std::map<JobId, JobRecord> jobs_;
  std::map<uint64_t, JobId> by_sequence_;
  std::set<uint64_t> ended_;  // sequences
  std::array<int64_t, 8> counts_{};
};

}  // namespace cohort::head
