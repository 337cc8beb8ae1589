#include "head/state/array_places.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cohort::head {
namespace {

int64_t LimitOf(const JobTable& jobs, const JobId& array) {
  return *jobs.arrays().Find(array)->at_once;
}

}  // namespace

ArrayPlaces::Slots* ArrayPlaces::SlotsOf(const JobRecord& job) {
  const auto found = arrays_.find(job.id.array());
  return found == arrays_.end() ? nullptr : &found->second;
}

const ArrayPlaces::Slots* ArrayPlaces::SlotsOf(const JobRecord& job) const {
  const auto found = arrays_.find(job.id.array());
  return found == arrays_.end() ? nullptr : &found->second;
}

void ArrayPlaces::Added(const JobRecord& job) {
  const ArrayTable::Entry* array = jobs_.arrays().Find(job.id.array());
  if (array == nullptr || !array->at_once.has_value()) return;
  Slots& slots = arrays_[job.id.array()];
  if (job.row.state() != v1::JOB_STATE_PENDING) {
    slots.admitted.insert(job.row.sequence());
  }
}

bool ArrayPlaces::Pass(const JobRecord& job) {
  Slots* slots = SlotsOf(job);
  if (slots == nullptr) return true;
  const auto limit = static_cast<size_t>(LimitOf(jobs_, job.id.array()));
  // More than the limit are admitted after Occupy only: this one waits then.
  if (slots->admitted.contains(job.row.sequence())) {
    if (slots->admitted.size() <= limit) return true;
    slots->admitted.erase(job.row.sequence());
  }
  if (slots->admitted.size() >= limit) {
    slots->waiting.insert(job.row.sequence());
    return false;
  }
  slots->waiting.erase(job.row.sequence());
  slots->admitted.insert(job.row.sequence());
  return true;
}

void ArrayPlaces::GiveUp(const JobRecord& job) {
  Slots* slots = SlotsOf(job);
  if (slots == nullptr) return;
  // Who was asked and may not come leaves its place to the next, too.
  const bool waited = slots->waiting.erase(job.row.sequence()) == 1;
  slots->occupied.erase(job.row.sequence());
  if (slots->admitted.erase(job.row.sequence()) == 1 || waited) {
    freed_.insert(job.id.array());
  }
}

void ArrayPlaces::KeptBefore(const JobRecord& job) {
  const Slots* slots = SlotsOf(job);
  if (slots != nullptr && !slots->occupied.contains(job.row.sequence())) {
    GiveUp(job);
  }
}

std::vector<JobId> ArrayPlaces::Occupy(const JobRecord& job) {
  std::vector<JobId> displaced;
  Slots* slots = SlotsOf(job);
  if (slots == nullptr) return displaced;
  slots->waiting.erase(job.row.sequence());
  slots->admitted.insert(job.row.sequence());
  slots->occupied.insert(job.row.sequence());
  const auto limit = static_cast<size_t>(LimitOf(jobs_, job.id.array()));
  // The last ones first, so that the order of the elements stays.
  auto at = slots->admitted.end();
  while (slots->admitted.size() > limit && at != slots->admitted.begin()) {
    --at;
    const JobId id = jobs_.by_sequence().at(*at);
    const bool waits = jobs_.Find(id)->row.state() == v1::JOB_STATE_PENDING;
    if (!waits || slots->occupied.contains(*at)) continue;
    slots->waiting.insert(*at);
    at = slots->admitted.erase(at);
    displaced.push_back(id);
  }
  return displaced;
}

void ArrayPlaces::Vacate(const JobRecord& job) {
  Slots* slots = SlotsOf(job);
  if (slots != nullptr) slots->occupied.erase(job.row.sequence());
}

std::vector<JobId> ArrayPlaces::TakeOpened() {
  std::vector<JobId> opened;
  for (const JobId& array : std::exchange(freed_, {})) {
    const auto found = arrays_.find(array);
    if (found == arrays_.end()) continue;
    const Slots& slots = found->second;
    auto free =
        LimitOf(jobs_, array) - static_cast<int64_t>(slots.admitted.size());
    for (const uint64_t sequence : slots.waiting) {
      if (free-- <= 0) break;
      opened.push_back(jobs_.by_sequence().at(sequence));
    }
  }
  return opened;
}

void ArrayPlaces::Ended(const JobRecord& job) {
  GiveUp(job);
  const ArrayTable::Entry* array = jobs_.arrays().Find(job.id.array());
  if (array != nullptr && array->HasEnded()) arrays_.erase(job.id.array());
}

bool ArrayPlaces::Keeps(const JobRecord& job) const {
  const Slots* slots = SlotsOf(job);
  return slots != nullptr && !slots->admitted.contains(job.row.sequence());
}

std::optional<Wait> ArrayPlaces::WaitOf(const JobRecord& job) const {
  if (!Keeps(job)) return std::nullopt;
  const JobId array = job.id.array();
  const int64_t admitted = AdmittedOf(array);
  if (admitted < LimitOf(jobs_, array)) return std::nullopt;
  return Wait{.kind = kind(),
              .text = absl::StrCat(
                  admitted, admitted == 1 ? " element of " : " elements of ",
                  array.ToText(),
                  admitted == 1 ? " runs or is about to, its limit"
                                : " run or are about to, its limit"),
              .lifted_by = {}};
}

JobGate::Elements ArrayPlaces::ElementsOf(const JobId& array,
                                          int64_t /*rest*/) const {
  const auto found = arrays_.find(array);
  if (found == arrays_.end() || found->second.waiting.empty()) return {};
  const std::set<uint64_t>& waiting = found->second.waiting;
  return {.count = static_cast<int64_t>(waiting.size()),
          .first = jobs_.by_sequence().at(*waiting.begin())};
}

int64_t ArrayPlaces::Before(const JobRecord& job) const {
  const Slots* slots = SlotsOf(job);
  if (slots == nullptr) return 0;
  return std::distance(slots->waiting.begin(),
                       slots->waiting.lower_bound(job.row.sequence()));
}

int64_t ArrayPlaces::AdmittedOf(const JobId& array) const {
  const auto found = arrays_.find(array);
  if (found == arrays_.end()) return 0;
  return static_cast<int64_t>(found->second.admitted.size());
}

std::vector<JobId> ArrayPlaces::NextOf(const JobId& array, size_t most) const {
  std::vector<JobId> next;
  const auto found = arrays_.find(array);
  if (found == arrays_.end()) return next;
  for (const uint64_t sequence : found->second.waiting) {
    if (next.size() == most) break;
    next.push_back(jobs_.by_sequence().at(sequence));
  }
  return next;
}

std::vector<JobId> ArrayPlaces::RunningOf(const JobId& array,
                                          size_t most) const {
  std::vector<JobId> running;
  const auto found = arrays_.find(array);
  if (found == arrays_.end()) return running;
  for (const uint64_t sequence : found->second.admitted) {
    if (running.size() == most) break;
    const JobId id = jobs_.by_sequence().at(sequence);
    if (jobs_.Find(id)->row.state() != v1::JOB_STATE_PENDING) {
      running.push_back(id);
    }
  }
  return running;
}

}  // namespace cohort::head
