#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/node_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"

#include "common/job_id.h"
#include "head/state/array_table.h"
#include "head/store/records.h"
#include "rpc/enum_text.h"

namespace cohort::head {

constexpr bool HasEnded(JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_STOPPED;
}

// NotFound, with what may have become of it.
absl::Status NoSuchJob(const JobId& id);

// The edges of a job's life, drawn in docs/design/0001-first-light.md.
//
//   JB-1: each job ends, in exactly one of SUCCEEDED, FAILED, STOPPED, and
//         never leaves it.
constexpr bool MayMove(JobState from, JobState to) {
  switch (from) {
    case v1::JOB_STATE_PENDING:
      return to == v1::JOB_STATE_STARTING || to == v1::JOB_STATE_STOPPED ||
             to == v1::JOB_STATE_FAILED;
    case v1::JOB_STATE_STARTING:
      return to == v1::JOB_STATE_RUNNING || to == v1::JOB_STATE_STOPPING ||
             to == v1::JOB_STATE_PENDING || to == v1::JOB_STATE_FAILED;
    case v1::JOB_STATE_RUNNING:
      return to == v1::JOB_STATE_SUCCEEDED || to == v1::JOB_STATE_STOPPING ||
             to == v1::JOB_STATE_PENDING || to == v1::JOB_STATE_FAILED;
    case v1::JOB_STATE_STOPPING:
      return to == v1::JOB_STATE_STOPPED;
    default:
      return false;
  }
}

// All jobs that the head remembers.
//
// Thread-compatible; belongs to ClusterState, which alone moves jobs.
class JobTable {
 public:
  // REQUIRES: its id is new.
  void AddArray(ArrayRecord record) { arrays_.Put(std::move(record)); }
  // REQUIRES: its id and sequence are new, and the array of an element is here.
  void Add(JobRecord record);
  // Moves a job along an edge.  REQUIRES: the job is here, and MayMove.
  void Move(const JobId& job, JobState to);
  // REQUIRES: the job is here and has ended; of an array's elements it is the
  // last one.
  void Remove(const JobId& job);

  const JobRecord* Find(const JobId& job) const;
  // For everything but state, id and sequence.
  JobRecord* FindMutable(const JobId& job);
  // How large its rows are, its attempts' too.  REQUIRES: it has ended.
  void SetBytes(const JobId& job, int64_t bytes);

  size_t size() const { return jobs_.size(); }
  int64_t CountOf(JobState state) const {
    return counts_[static_cast<size_t>(state)];
  }
  // The gate that keeps a PENDING job; UNSPECIFIED: none does.
  void SetGate(const JobId& job, WaitKind gate);
  WaitKind GateOf(const JobId& job) const { return jobs_.at(job).gate; }
  int64_t CountAt(WaitKind gate) const {
    return counts_at_[static_cast<size_t>(gate)];
  }
  // What the specs of jobs that have not ended take; of an array one.
  int64_t live_spec_bytes() const { return live_spec_bytes_; }
  // By the state's name, those without a job too.
  std::map<std::string, int64_t> CountsByState() const;
  const ArrayTable& arrays() const { return arrays_; }
  // As ArrayTable's.  An array with an end is not forgotten, nor one whose
  // elements' rows are behind.
  void SetArrayEnd(const JobId& array, std::optional<ArrayEnd> end);
  void SetArrayEndFrom(const JobId& array, uint64_t from) {
    arrays_.SetEndFrom(array, from);
  }
  void SetArrayHold(const JobId& array, ArrayHold hold);
  void SetArrayRowFrom(const JobId& array, uint64_t from) {
    arrays_.SetRowFrom(array, from);
  }
  void ArrayCaughtUp(const JobId& array);
  // A job; of an array all elements, in order; none when there is no such job.
  std::vector<JobId> Named(const JobId& id) const;

  // What may be forgotten: a single job that has ended, or an array all of
  // whose elements have, on which nobody depends.
  struct Unit {
    int64_t jobs = 0;
    int64_t bytes = 0;
    absl::Time ended_at;
  };
  // None while the job or array may not be forgotten, or is not here.
  std::optional<Unit> EndedUnit(const JobId& id) const;
  // Jobs and arrays for which that may be otherwise than when this was called
  // last.
  std::set<JobId> TakeTouched() { return std::exchange(touched_, {}); }
  // From now on the array is not found by its id.
  void BeginToForget(const JobId& array) { arrays_.BeginToForget(array); }
  // Forgets the array.  REQUIRES: its elements are removed.
  void RemoveArray(const JobId& array) { arrays_.Remove(array); }

  // Keeps a job or an array from being forgotten; counted.
  void Pin(const JobId& id);
  void Unpin(const JobId& id);

  // By order of submission.
  const std::map<uint64_t, JobId>& by_sequence() const { return by_sequence_; }

 private:
  struct Entry {
    JobRecord record;
    int64_t bytes = 0;  // once it has ended
    WaitKind gate = v1::WAIT_KIND_UNSPECIFIED;
  };

  // How many jobs that have not ended share the spec of `job`.
  int64_t LiveWith(const JobRecord& job) const;

  absl::node_hash_map<JobId, Entry> jobs_;
  ArrayTable arrays_;
  std::map<JobId, int64_t> pins_;
  std::map<uint64_t, JobId> by_sequence_;
  std::set<JobId> touched_;
  std::array<int64_t, 8> counts_{};
  std::array<int64_t, v1::WaitKind_ARRAYSIZE> counts_at_{};  // of gates
  int64_t live_spec_bytes_ = 0;
};

}  // namespace cohort::head
