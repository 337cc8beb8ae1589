#include "head/array_table.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"

#include "common/array_spec.h"
#include "common/check.h"

namespace cohort::head {

JobState ArrayTable::Entry::State() const {
  for (const JobState state :
       {JobState::kRunning, JobState::kStarting, JobState::kStopping}) {
    if (CountOf(state) > 0) return state;
  }
  if (!HasEnded()) return JobState::kPending;
  for (const JobState state : {JobState::kFailed, JobState::kStopped}) {
    if (CountOf(state) > 0) return state;
  }
  return JobState::kSucceeded;
}

void ArrayTable::Put(ArrayRecord record) {
  const JobId id = record.id;
  Entry entry;
  // What was accepted parses; an older row that does not has no limit.
  const absl::StatusOr<ArraySpec> spec = ArraySpec::Parse(record.spec->array);
  if (spec.ok()) entry.at_once = spec->at_once;
  entry.record = std::move(record);
  COHORT_CHECK(arrays_.emplace(id, std::move(entry)).second) << id;
}

void ArrayTable::Remove(const JobId& array) {
  const Entry* entry = Find(array);
  COHORT_CHECK(entry != nullptr && entry->size == 0) << array;
  arrays_.erase(array);
}

void ArrayTable::Added(const JobRecord& element) {
  Entry* entry = OfElement(element);
  if (entry == nullptr) return;
  ++entry->counts[static_cast<size_t>(element.state)];
  entry->first_sequence =
      entry->size == 0 ? element.sequence
                       : std::min(entry->first_sequence, element.sequence);
  ++entry->size;
  NoteFailure(element, *entry);
}

void ArrayTable::Moved(const JobRecord& element, JobState from) {
  Entry* entry = OfElement(element);
  if (entry == nullptr) return;
  --entry->counts[static_cast<size_t>(from)];
  ++entry->counts[static_cast<size_t>(element.state)];
  NoteFailure(element, *entry);
}

void ArrayTable::Removed(const JobRecord& element) {
  Entry* entry = OfElement(element);
  if (entry == nullptr) return;
  --entry->counts[static_cast<size_t>(element.state)];
  --entry->size;
}

const ArrayTable::Entry* ArrayTable::Find(const JobId& array) const {
  const auto found = arrays_.find(array);
  return found == arrays_.end() ? nullptr : &found->second;
}

void ArrayTable::NoteFailure(const JobRecord& element, Entry& entry) {
  if (element.state != JobState::kFailed) return;
  entry.first_failed =
      std::min(entry.first_failed.value_or(element.sequence), element.sequence);
}

ArrayTable::Entry* ArrayTable::OfElement(const JobRecord& element) {
  if (!element.id.IsElement()) return nullptr;
  const auto found = arrays_.find(element.id.array());
  COHORT_CHECK(found != arrays_.end()) << element.id;
  return &found->second;
}

}  // namespace cohort::head
