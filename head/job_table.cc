#include "head/job_table.h"

#include <utility>

#include "common/check.h"

namespace cohort::head {

const char* JobStateName(JobState state) {
  switch (state) {
    case JobState::kPending:
      return "PENDING";
    case JobState::kStarting:
      return "STARTING";
    case JobState::kRunning:
      return "RUNNING";
    case JobState::kStopping:
      return "STOPPING";
    case JobState::kSucceeded:
      return "SUCCEEDED";
    case JobState::kFailed:
      return "FAILED";
    case JobState::kStopped:
      return "STOPPED";
  }
  return "UNKNOWN";
}

void JobTable::Add(JobRecord record) {
  const JobId id = record.id;
  const uint64_t sequence = record.sequence;
  const JobState state = record.state;
  COHORT_CHECK(jobs_.emplace(id, std::move(record)).second) << id;
  COHORT_CHECK(by_sequence_.emplace(sequence, id).second) << sequence;
  if (HasEnded(state)) ended_.insert(sequence);
  ++counts_[static_cast<size_t>(state)];
}

void JobTable::Move(const JobId& job, JobState to) {
  JobRecord* record = FindMutable(job);
  COHORT_CHECK(record != nullptr) << job;
  COHORT_CHECK(MayMove(record->state, to))
      << job << " " << JobStateName(record->state) << " " << JobStateName(to);
  --counts_[static_cast<size_t>(record->state)];
  ++counts_[static_cast<size_t>(to)];
  record->state = to;
  if (HasEnded(to)) ended_.insert(record->sequence);
}

void JobTable::Remove(const JobId& job) {
  const JobRecord* record = Find(job);
  COHORT_CHECK(record != nullptr && HasEnded(record->state)) << job;
  --counts_[static_cast<size_t>(record->state)];
  ended_.erase(record->sequence);
  by_sequence_.erase(record->sequence);
  jobs_.erase(job);
}

const JobRecord* JobTable::Find(const JobId& job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? nullptr : &found->second;
}

JobRecord* JobTable::FindMutable(const JobId& job) {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? nullptr : &found->second;
}

int64_t JobTable::ended_count() const {
  return static_cast<int64_t>(ended_.size());
}

std::optional<JobId> JobTable::OldestEnded() const {
  if (ended_.empty()) return std::nullopt;
  return by_sequence_.at(*ended_.begin());
}

}  // namespace cohort::head
