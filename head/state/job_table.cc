#include "head/state/job_table.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "common/status_util.h"
#include "head/state/job_spec.h"
#include "rpc/enum_text.h"

namespace cohort::head {

absl::Status NoSuchJob(const JobId& id) {
  return SetReason(
      absl::NotFoundError(absl::StrCat(
          "there is no job ", id.ToText(),
          " here: it was never submitted, or it ended and was removed, or "
          "trimmed from the head's history (--keep-jobs, --keep-for)")),
      "unknown_job");
}

void JobTable::Add(JobRecord record) {
  const JobId id = record.id;
  const uint64_t sequence = record.row.sequence();
  const JobState state = record.row.state();
  const auto [entry, is_new] =
      jobs_.emplace(id, Entry{.record = std::move(record)});
  COHORT_CHECK(is_new) << id;
  COHORT_CHECK(by_sequence_.emplace(sequence, id).second) << sequence;
  ++counts_[static_cast<size_t>(state)];
  const JobRecord& added = entry->second.record;
  arrays_.Added(added);
  if (!HasEnded(state) && LiveWith(added) == 1) {
    live_spec_bytes_ += SpecBytes(*added.spec);
  }
  touched_.insert(id.array());
}

void JobTable::Move(const JobId& job, JobState to) {
  JobRecord* record = FindMutable(job);
  COHORT_CHECK(record != nullptr) << job;
  const JobState from = record->row.state();
  COHORT_CHECK(MayMove(from, to))
      << job << " " << EnumText(from) << " " << EnumText(to);
  --counts_[static_cast<size_t>(from)];
  ++counts_[static_cast<size_t>(to)];
  record->row.set_state(to);
  arrays_.Moved(*record, from);
  if (HasEnded(to) && LiveWith(*record) == 0) {
    live_spec_bytes_ -= SpecBytes(*record->spec);
  }
  touched_.insert(job.array());
}

void JobTable::Remove(const JobId& job) {
  const JobRecord* record = Find(job);
  COHORT_CHECK(record != nullptr && HasEnded(record->row.state())) << job;
  SetBytes(job, 0);
  --counts_[static_cast<size_t>(record->row.state())];
  arrays_.Removed(*record);
  by_sequence_.erase(record->row.sequence());
  jobs_.erase(job);
}

int64_t JobTable::LiveWith(const JobRecord& job) const {
  if (!job.id.IsElement()) return HasEnded(job.row.state()) ? 0 : 1;
  return arrays_.all().at(job.id.array()).live_count();
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

void JobTable::SetArrayEnd(const JobId& array, std::optional<ArrayEnd> end) {
  arrays_.SetEnd(array, std::move(end));
  touched_.insert(array);
}

void JobTable::SetArrayHold(const JobId& array, ArrayHold hold) {
  arrays_.SetHold(array, std::move(hold));
  touched_.insert(array);
}

void JobTable::ArrayCaughtUp(const JobId& array) {
  arrays_.CaughtUp(array);
  touched_.insert(array);
}

// ---- what may be forgotten ----

std::optional<JobTable::Unit> JobTable::EndedUnit(const JobId& id) const {
  if (pins_.contains(id)) return std::nullopt;
  const auto array = arrays_.all().find(id);
  if (array != arrays_.all().end()) {
    const ArrayTable::Entry& entry = array->second;
    if (entry.size == 0 || !entry.HasEnded() || entry.record.row.has_end() ||
        arrays_.behind().contains(id)) {
      return std::nullopt;
    }
    return Unit{.jobs = entry.size,
                .bytes = entry.row_bytes + entry.bytes,
                .ended_at = entry.ended_at};
  }
  const auto job = jobs_.find(id);
  if (job == jobs_.end() || !HasEnded(job->second.record.row.state())) {
    return std::nullopt;
  }
  return Unit{.jobs = 1,
              .bytes = job->second.bytes,
              .ended_at = job->second.record.ended_at()};
}

void JobTable::SetBytes(const JobId& job, int64_t bytes) {
  Entry& entry = jobs_.at(job);
  COHORT_CHECK(HasEnded(entry.record.row.state())) << job;
  arrays_.Grow(entry.record, bytes - entry.bytes);
  entry.bytes = bytes;
  touched_.insert(job.array());
}

void JobTable::SetGate(const JobId& job, WaitKind gate) {
  WaitKind& now = jobs_.at(job).gate;
  --counts_at_[static_cast<size_t>(now)];
  ++counts_at_[static_cast<size_t>(gate)];
  now = gate;
}

void JobTable::Pin(const JobId& id) {
  ++pins_[id.array()];
  touched_.insert(id.array());
}

void JobTable::Unpin(const JobId& id) {
  const auto pin = pins_.find(id.array());
  COHORT_CHECK(pin != pins_.end()) << id;
  if (--pin->second > 0) return;
  pins_.erase(pin);
  touched_.insert(id.array());
}

std::map<std::string, int64_t> JobTable::CountsByState() const {
  std::map<std::string, int64_t> counts;
  for (const JobState state :
       {v1::JOB_STATE_PENDING, v1::JOB_STATE_STARTING, v1::JOB_STATE_RUNNING,
        v1::JOB_STATE_STOPPING, v1::JOB_STATE_SUCCEEDED, v1::JOB_STATE_FAILED,
        v1::JOB_STATE_STOPPED}) {
    counts[EnumText(state)] = CountOf(state);
  }
  return counts;
}

const JobRecord* JobTable::Find(const JobId& job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? nullptr : &found->second.record;
}

JobRecord* JobTable::FindMutable(const JobId& job) {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? nullptr : &found->second.record;
}

}  // namespace cohort::head
