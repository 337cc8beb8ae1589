#include "head/state/array_table.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"

#include "common/array_spec.h"
#include "common/check.h"
#include "head/store/records_codec.h"

namespace cohort::head {
namespace {

// Of an array's own two rows.
int64_t RowBytes(const ArrayRecord& record) {
  return static_cast<int64_t>(
      StoredBytes(record) +
      StoredBytes(SpecRecord{.id = record.id, .spec = record.spec}));
}

}  // namespace

JobState ArrayTable::Entry::State() const {
  for (const JobState state : {v1::JOB_STATE_RUNNING, v1::JOB_STATE_STARTING,
                               v1::JOB_STATE_STOPPING}) {
    if (CountOf(state) > 0) return state;
  }
  if (!HasEnded()) return v1::JOB_STATE_PENDING;
  for (const JobState state : {v1::JOB_STATE_FAILED, v1::JOB_STATE_STOPPED}) {
    if (CountOf(state) > 0) return state;
  }
  return v1::JOB_STATE_SUCCEEDED;
}

void ArrayTable::Put(ArrayRecord record) {
  const JobId id = record.id;
  Entry entry;
  // What was accepted parses; an older row that does not has no limit.
  const absl::StatusOr<ArraySpec> spec = ArraySpec::Parse(record.spec->array());
  if (spec.ok()) {
    entry.at_once = spec->at_once;
    entry.elements = static_cast<int64_t>(spec->indices.size());
  }
  entry.row_bytes = RowBytes(record);
  entry.record = std::move(record);
  const storage::v1::ArrayRow& row = entry.record.row;
  if (row.has_end()) ending_.insert(id);
  if (row.has_hold() || row.first_sequence() > 0) {
    behind_.insert(id);
  }
  COHORT_CHECK(arrays_.emplace(id, std::move(entry)).second) << id;
}

void ArrayTable::Remove(const JobId& array) {
  const auto found = arrays_.find(array);
  COHORT_CHECK(found != arrays_.end() && found->second.size == 0) << array;
  arrays_.erase(found);
  going_.erase(array);
}

void ArrayTable::Added(const JobRecord& element) {
  Entry* entry = OfElement(element);
  if (entry == nullptr) return;
  ++entry->counts[static_cast<size_t>(element.row.state())];
  entry->first_sequence = entry->size == 0 ? element.row.sequence()
                                           : std::min(entry->first_sequence,
                                                      element.row.sequence());
  ++entry->size;
  Note(element, *entry);
}

void ArrayTable::Moved(const JobRecord& element, JobState from) {
  Entry* entry = OfElement(element);
  if (entry == nullptr) return;
  --entry->counts[static_cast<size_t>(from)];
  ++entry->counts[static_cast<size_t>(element.row.state())];
  Note(element, *entry);
}

void ArrayTable::Removed(const JobRecord& element) {
  Entry* entry = OfElement(element);
  if (entry == nullptr) return;
  --entry->counts[static_cast<size_t>(element.row.state())];
  --entry->size;
}

void ArrayTable::Grow(const JobRecord& element, int64_t delta) {
  Entry* entry = OfElement(element);
  if (entry == nullptr) return;
  entry->bytes += delta;
  entry->ended_at = std::max(entry->ended_at, element.ended_at());
}

void ArrayTable::SetEnd(const JobId& array, std::optional<ArrayEnd> end) {
  Entry& entry = arrays_.at(array);
  if (end.has_value()) {
    *entry.record.row.mutable_end() = *std::move(end);
    ending_.insert(array);
  } else {
    entry.record.row.clear_end();
    ending_.erase(array);
  }
  entry.end_from = 0;
  entry.row_bytes = RowBytes(entry.record);
}

void ArrayTable::SetEndFrom(const JobId& array, uint64_t from) {
  arrays_.at(array).end_from = from;
}

void ArrayTable::SetHold(const JobId& array, ArrayHold hold) {
  Entry& entry = arrays_.at(array);
  *entry.record.row.mutable_hold() = std::move(hold);
  entry.row_from = 0;
  entry.row_bytes = RowBytes(entry.record);
  behind_.insert(array);
}

void ArrayTable::SetRowFrom(const JobId& array, uint64_t from) {
  arrays_.at(array).row_from = from;
}

void ArrayTable::CaughtUp(const JobId& array) {
  Entry& entry = arrays_.at(array);
  entry.record.row.clear_hold();
  entry.record.row.clear_first_sequence();
  entry.row_bytes = RowBytes(entry.record);
  behind_.erase(array);
}

void ArrayTable::BeginToForget(const JobId& array) {
  Entry& entry = arrays_.at(array);
  COHORT_CHECK(entry.HasEnded()) << array;
  entry.is_going = true;
  going_.insert(array);
}

std::optional<JobId> ArrayTable::Going() const {
  if (going_.empty()) return std::nullopt;
  return *going_.begin();
}

const ArrayTable::Entry* ArrayTable::Find(const JobId& array) const {
  const auto found = arrays_.find(array);
  const bool is_here = found != arrays_.end() && !found->second.is_going;
  return is_here ? &found->second : nullptr;
}

void ArrayTable::Note(const JobRecord& element, Entry& entry) {
  if (element.started_at() != absl::InfinitePast()) {
    entry.started_at = entry.started_at == absl::InfinitePast()
                           ? element.started_at()
                           : std::min(entry.started_at, element.started_at());
  }
  if (element.row.state() != v1::JOB_STATE_FAILED) return;
  entry.first_failed =
      std::min(entry.first_failed.value_or(element.row.sequence()),
               element.row.sequence());
}

ArrayTable::Entry* ArrayTable::OfElement(const JobRecord& element) {
  if (!element.id.IsElement()) return nullptr;
  const auto found = arrays_.find(element.id.array());
  COHORT_CHECK(found != arrays_.end()) << element.id;
  return &found->second;
}

}  // namespace cohort::head
