#include "head/state/eligibility.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cohort::head {
namespace {

int64_t LimitOf(const JobTable& jobs, const JobId& array) {
  return *jobs.arrays().Find(array)->at_once;
}

}  // namespace

Eligibility::Slots* Eligibility::SlotsOf(const JobRecord& job) {
  const auto found = arrays_.find(job.id.array());
  return found == arrays_.end() ? nullptr : &found->second;
}

const Eligibility::Slots* Eligibility::SlotsOf(const JobRecord& job) const {
  const auto found = arrays_.find(job.id.array());
  return found == arrays_.end() ? nullptr : &found->second;
}

void Eligibility::NoteHeld(const JobRecord& job, bool held) {
  if (!job.id.IsElement()) return;
  if (held) {
    held_[job.id.array()].insert(job.sequence);
    return;
  }
  const auto found = held_.find(job.id.array());
  if (found == held_.end()) return;
  found->second.erase(job.sequence);
  if (found->second.empty()) held_.erase(found);
}

void Eligibility::Added(const JobRecord& job) {
  NoteHeld(job, job.held);
  const JobId who = job.id.array();
  const ArrayTable::Entry* array = jobs_.arrays().Find(who);
  // Of an array once, with the first element that comes.
  if (!dependencies_.Knows(who)) dependencies_.Add(who, job.spec->after());
  if (array == nullptr || !array->at_once.has_value()) return;
  Slots& slots = arrays_[who];
  if (job.state != v1::JOB_STATE_PENDING) slots.admitted.insert(job.sequence);
}

bool Eligibility::Admit(const JobRecord& job) {
  const JobId who = job.id.array();
  NoteHeld(job, job.held);
  if (dependencies_.RepeatIfBroken(who)) return false;
  if (job.held || dependencies_.Waits(who)) return false;
  Slots* slots = SlotsOf(job);
  if (slots == nullptr) return true;
  const auto limit = static_cast<size_t>(LimitOf(jobs_, who));
  // More than the limit are admitted after Occupy only: this one waits then.
  if (slots->admitted.contains(job.sequence)) {
    if (slots->admitted.size() <= limit) return true;
    slots->admitted.erase(job.sequence);
  }
  if (slots->admitted.size() >= limit) {
    slots->waiting.insert(job.sequence);
    return false;
  }
  slots->waiting.erase(job.sequence);
  slots->admitted.insert(job.sequence);
  return true;
}

void Eligibility::GiveUp(const JobRecord& job) {
  Slots* slots = SlotsOf(job);
  if (slots == nullptr) return;
  slots->waiting.erase(job.sequence);
  slots->occupied.erase(job.sequence);
  if (slots->admitted.erase(job.sequence) == 1) freed_.insert(job.id.array());
}

std::vector<JobId> Eligibility::Occupy(const JobRecord& job) {
  std::vector<JobId> displaced;
  Slots* slots = SlotsOf(job);
  if (slots == nullptr) return displaced;
  slots->waiting.erase(job.sequence);
  slots->admitted.insert(job.sequence);
  slots->occupied.insert(job.sequence);
  const auto limit = static_cast<size_t>(LimitOf(jobs_, job.id.array()));
  // The last ones first, so that the order of the elements stays.
  auto at = slots->admitted.end();
  while (slots->admitted.size() > limit && at != slots->admitted.begin()) {
    --at;
    const JobId id = jobs_.by_sequence().at(*at);
    const bool waits = jobs_.Find(id)->state == v1::JOB_STATE_PENDING;
    if (!waits || slots->occupied.contains(*at)) continue;
    slots->waiting.insert(*at);
    at = slots->admitted.erase(at);
    displaced.push_back(id);
  }
  return displaced;
}

void Eligibility::Vacate(const JobRecord& job) {
  Slots* slots = SlotsOf(job);
  if (slots == nullptr || slots->occupied.erase(job.sequence) == 0) return;
  if (job.state == v1::JOB_STATE_PENDING && job.held) GiveUp(job);
}

std::vector<JobId> Eligibility::TakeReady() {
  std::vector<JobId> ready = std::exchange(ready_, {});
  for (const JobId& array : std::exchange(freed_, {})) {
    const auto found = arrays_.find(array);
    if (found == arrays_.end()) continue;
    const Slots& slots = found->second;
    auto free =
        LimitOf(jobs_, array) - static_cast<int64_t>(slots.admitted.size());
    for (const uint64_t sequence : slots.waiting) {
      if (free-- <= 0) break;
      ready.push_back(jobs_.by_sequence().at(sequence));
    }
  }
  return ready;
}

void Eligibility::Withdraw(const JobRecord& job) {
  NoteHeld(job, job.held);
  GiveUp(job);
}

void Eligibility::Ended(const JobRecord& job) {
  NoteHeld(job, /*held=*/false);
  GiveUp(job);
  std::vector<JobId> released = dependencies_.Ended(job.id);
  const ArrayTable::Entry* array = jobs_.arrays().Find(job.id.array());
  if (array == nullptr) {
    dependencies_.Remove(job.id);
  } else if (array->HasEnded()) {
    dependencies_.Remove(job.id.array());
    arrays_.erase(job.id.array());
    for (const JobId& who : dependencies_.Ended(job.id.array())) {
      released.push_back(who);
    }
  }
  for (const JobId& who : released) {
    for (const JobId& each : jobs_.Named(who)) ready_.push_back(each);
  }
}

std::string Eligibility::ReasonOf(const JobRecord& job) const {
  if (job.held) return absl::StrCat("held by ", job.held_by);
  const JobId who = job.id.array();
  if (dependencies_.Waits(who)) return dependencies_.ReasonOf(who);
  const Slots* slots = SlotsOf(job);
  if (slots == nullptr || !slots->waiting.contains(job.sequence)) return "";
  const size_t admitted = slots->admitted.size();
  return absl::StrCat(
      admitted, admitted == 1 ? " element of " : " elements of ", who.ToText(),
      admitted == 1 ? " runs or is about to, its limit"
                    : " run or are about to, its limit");
}

bool Eligibility::LacksPlace(const JobRecord& job) const {
  const Slots* slots = SlotsOf(job);
  return slots != nullptr && !slots->admitted.contains(job.sequence);
}

Eligibility::Kept Eligibility::KeptBy(const JobRecord& job) const {
  const JobId who = job.id.array();
  Kept kept;
  if (job.held) kept.held = job.held_by;
  if (dependencies_.Waits(who)) kept.after = dependencies_.ReasonOf(who);
  const Slots* slots = SlotsOf(job);
  if (slots == nullptr || slots->admitted.contains(job.sequence)) return kept;
  kept.admitted = static_cast<int64_t>(slots->admitted.size());
  kept.at_limit = kept.admitted >= LimitOf(jobs_, who);
  if (kept.at_limit) kept.first_admitted = *slots->admitted.begin();
  kept.before = std::distance(slots->waiting.begin(),
                              slots->waiting.lower_bound(job.sequence));
  return kept;
}

std::optional<Eligibility::Places> Eligibility::PlacesOf(
    const JobId& array, size_t next_max) const {
  const auto found = arrays_.find(array);
  if (found == arrays_.end()) return std::nullopt;
  const Slots& slots = found->second;
  Places places{.limit = LimitOf(jobs_, array),
                .admitted = static_cast<int64_t>(slots.admitted.size())};
  for (const uint64_t sequence : slots.waiting) {
    places.more = places.next.size() == next_max;
    if (places.more) break;
    places.next.push_back(jobs_.by_sequence().at(sequence));
  }
  return places;
}

std::vector<JobId> Eligibility::RunningOf(const JobId& array,
                                          size_t most) const {
  std::vector<JobId> running;
  const auto found = arrays_.find(array);
  if (found == arrays_.end()) return running;
  for (const uint64_t sequence : found->second.admitted) {
    if (running.size() == most) break;
    const JobId id = jobs_.by_sequence().at(sequence);
    if (jobs_.Find(id)->state != v1::JOB_STATE_PENDING) running.push_back(id);
  }
  return running;
}

Eligibility::KeptElements Eligibility::KeptOf(const JobId& array) const {
  KeptElements kept;
  const ArrayTable::Entry* const entry = jobs_.arrays().Find(array);
  if (entry == nullptr) return kept;
  if (const auto held = held_.find(array); held != held_.end()) {
    kept.held = static_cast<int64_t>(held->second.size());
    kept.first_held = *held->second.begin();
  }
  if (dependencies_.Waits(array)) {
    kept.after = entry->CountOf(v1::JOB_STATE_PENDING) - kept.held;
    return kept;
  }
  const auto slots = arrays_.find(array);
  if (slots == arrays_.end() || slots->second.waiting.empty()) return kept;
  kept.at_limit = static_cast<int64_t>(slots->second.waiting.size());
  kept.first_at_limit = *slots->second.waiting.begin();
  return kept;
}

}  // namespace cohort::head
