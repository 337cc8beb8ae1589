#include "head/eligibility.h"

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

void Eligibility::Added(const JobRecord& job) {
  const JobId who = job.id.array();
  const ArrayTable::Entry* array = jobs_.arrays().Find(who);
  // Of an array once, with the first element that comes.
  if (!dependencies_.Knows(who)) dependencies_.Add(who, job.spec->after);
  if (array == nullptr || !array->at_once.has_value()) return;
  Slots& slots = arrays_[who];
  if (job.state != JobState::kPending) slots.admitted.insert(job.sequence);
}

bool Eligibility::Admit(const JobRecord& job) {
  if (job.held || dependencies_.Waits(job.id.array())) return false;
  Slots* slots = SlotsOf(job);
  if (slots == nullptr || slots->admitted.contains(job.sequence)) return true;
  const auto limit = static_cast<size_t>(LimitOf(jobs_, job.id.array()));
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
  if (slots->admitted.erase(job.sequence) == 1) freed_.insert(job.id.array());
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

void Eligibility::Withdraw(const JobRecord& job) { GiveUp(job); }

void Eligibility::Ended(const JobRecord& job) {
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
  return absl::StrCat(slots->admitted.size(), " elements of ", who.ToText(),
                      " run or are about to, its limit");
}

}  // namespace cohort::head
