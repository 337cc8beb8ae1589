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
  const auto [entry, is_new] = jobs_.emplace(id, std::move(record));
  COHORT_CHECK(is_new) << id;
  COHORT_CHECK(by_sequence_.emplace(sequence, id).second) << sequence;
  ++counts_[static_cast<size_t>(state)];
  // An array that seemed to have ended has one more.
  if (id.IsElement()) ForgetEnded(id.array());
  arrays_.Added(entry->second);
  NoteEnded(id.array());
}

void JobTable::Move(const JobId& job, JobState to) {
  JobRecord* record = FindMutable(job);
  COHORT_CHECK(record != nullptr) << job;
  const JobState from = record->state;
  COHORT_CHECK(MayMove(from, to))
      << job << " " << JobStateName(from) << " " << JobStateName(to);
  --counts_[static_cast<size_t>(from)];
  ++counts_[static_cast<size_t>(to)];
  record->state = to;
  arrays_.Moved(*record, from);
  NoteEnded(job.array());
}

void JobTable::Remove(const JobId& job) {
  const JobRecord* record = Find(job);
  COHORT_CHECK(record != nullptr && HasEnded(record->state)) << job;
  ForgetEnded(job.array());
  --counts_[static_cast<size_t>(record->state)];
  arrays_.Removed(*record);
  by_sequence_.erase(record->sequence);
  jobs_.erase(job);
}

std::vector<JobId> JobTable::Named(const JobId& id) const {
  if (Find(id) != nullptr) return {id};
  std::vector<JobId> elements;
  const ArrayTable::Entry* array = arrays_.Find(id);
  if (array == nullptr) return elements;
  elements.reserve(static_cast<size_t>(array->size));
  auto it = by_sequence_.find(array->first_sequence);
  for (int64_t i = 0; i < array->size; ++i, ++it) {
    elements.push_back(it->second);
  }
  return elements;
}

// ---- what may be forgotten ----

std::optional<JobTable::Unit> JobTable::EndedUnit(const JobId& id) const {
  if (pins_.contains(id)) return std::nullopt;
  if (const ArrayTable::Entry* array = arrays_.Find(id)) {
    if (array->size == 0 || !array->HasEnded()) return std::nullopt;
    return Unit{.sequence = array->first_sequence, .jobs = array->size};
  }
  const JobRecord* job = Find(id);
  if (job == nullptr || !HasEnded(job->state)) return std::nullopt;
  return Unit{.sequence = job->sequence, .jobs = 1};
}

void JobTable::NoteEnded(const JobId& id) {
  const std::optional<Unit> unit = EndedUnit(id);
  if (unit.has_value() && ended_.insert(unit->sequence).second) {
    ended_jobs_ += unit->jobs;
  }
}

void JobTable::ForgetEnded(const JobId& id) {
  const std::optional<Unit> unit = EndedUnit(id);
  if (unit.has_value() && ended_.erase(unit->sequence) == 1) {
    ended_jobs_ -= unit->jobs;
  }
}

void JobTable::Pin(const JobId& id) {
  ForgetEnded(id.array());
  ++pins_[id.array()];
}

void JobTable::Unpin(const JobId& id) {
  const auto pin = pins_.find(id.array());
  COHORT_CHECK(pin != pins_.end()) << id;
  if (--pin->second > 0) return;
  pins_.erase(pin);
  NoteEnded(id.array());
}

const JobRecord* JobTable::Find(const JobId& job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? nullptr : &found->second;
}

JobRecord* JobTable::FindMutable(const JobId& job) {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? nullptr : &found->second;
}

std::optional<JobId> JobTable::OldestEnded() const {
  if (ended_.empty()) return std::nullopt;
  return by_sequence_.at(*ended_.begin()).array();
}

}  // namespace cohort::head
