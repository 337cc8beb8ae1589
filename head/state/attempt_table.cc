#include "head/state/attempt_table.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace cohort::head {

void AttemptTable::Add(AttemptRecord record) {
  const AttemptId id = record.id;
  for (const auto& [number, sibling] : by_job_[record.job]) {
    const AttemptState state = attempts_.at(sibling).state;
    COHORT_CHECK(state == v1::ATTEMPT_STATE_ENDED ||
                 record.state == v1::ATTEMPT_STATE_ENDED)
        << "two attempts of job " << record.job;
  }
  COHORT_CHECK(by_job_[record.job].emplace(record.number, id).second) << id;
  if (record.state != v1::ATTEMPT_STATE_ENDED) {
    for (const Place& place : record.places) by_node_[place.node].insert(id);
  }
  COHORT_CHECK(attempts_.emplace(id, std::move(record)).second) << id;
  NoteEndedOrphan(id);
}

void AttemptTable::Remove(const AttemptId& attempt) {
  Retire(attempt);
  const AttemptRecord& record = attempts_.at(attempt);
  const auto siblings = by_job_.find(record.job);
  siblings->second.erase(record.number);
  if (siblings->second.empty()) by_job_.erase(siblings);
  attempts_.erase(attempt);
  ++removed_count_;
}

const AttemptRecord* AttemptTable::Find(const AttemptId& attempt) const {
  const auto found = attempts_.find(attempt);
  return found == attempts_.end() ? nullptr : &found->second;
}

AttemptRecord* AttemptTable::FindMutable(const AttemptId& attempt) {
  const auto found = attempts_.find(attempt);
  return found == attempts_.end() ? nullptr : &found->second;
}

const AttemptRecord* AttemptTable::OfJob(const JobId& job, int number) const {
  const auto numbers = by_job_.find(job);
  if (numbers == by_job_.end()) return nullptr;
  const auto found = numbers->second.find(number);
  return found == numbers->second.end() ? nullptr : Find(found->second);
}

const AttemptRecord* AttemptTable::LastOf(const JobId& job) const {
  const auto numbers = by_job_.find(job);
  if (numbers == by_job_.end()) return nullptr;
  return Find(numbers->second.rbegin()->second);
}

std::vector<AttemptId> AttemptTable::AllOf(const JobId& job) const {
  std::vector<AttemptId> all;
  const auto numbers = by_job_.find(job);
  if (numbers == by_job_.end()) return all;
  for (const auto& [number, id] : numbers->second) all.push_back(id);
  return all;
}

std::vector<AttemptId> AttemptTable::OnNode(const NodeId& node) const {
  const auto found = by_node_.find(node);
  if (found == by_node_.end()) return {};
  return std::vector<AttemptId>(found->second.begin(), found->second.end());
}

void AttemptTable::Retire(const AttemptId& attempt) {
  ended_orphans_.erase(attempt);
  for (const Place& place : attempts_.at(attempt).places) {
    const auto found = by_node_.find(place.node);
    if (found == by_node_.end()) continue;
    found->second.erase(attempt);
    if (found->second.empty()) by_node_.erase(found);
  }
}

void AttemptTable::NoteEndedOrphan(const AttemptId& attempt) {
  if (IsEndedOrphan(attempts_.at(attempt))) ended_orphans_.insert(attempt);
}

const Place* PlaceOn(const AttemptRecord& attempt, const NodeId& node) {
  for (const Place& place : attempt.places) {
    if (place.node == node) return &place;
  }
  return nullptr;
}

Place* PlaceOn(AttemptRecord& attempt, const NodeId& node) {
  return const_cast<Place*>(
      PlaceOn(static_cast<const AttemptRecord&>(attempt), node));
}

Process* FindProcess(AttemptRecord& attempt, int slot, uint64_t incarnation) {
  if (slot < 0 || slot >= static_cast<int>(attempt.processes.size())) {
    return nullptr;
  }
  Process& process = attempt.processes[static_cast<size_t>(slot)];
  return process.incarnation == incarnation ? &process : nullptr;
}

bool IsOnNode(const AttemptRecord& attempt, int slot, const NodeId& node) {
  return slot >= 0 && slot < static_cast<int>(attempt.processes.size()) &&
         attempt.processes[static_cast<size_t>(slot)].node == node;
}

std::set<int> SlotsOn(const AttemptRecord& attempt, const NodeId& node) {
  std::set<int> slots;
  for (const Process& process : attempt.processes) {
    if (process.node == node) slots.insert(process.slot);
  }
  return slots;
}

uint64_t MemberIncarnation(const Process& process) {
  const bool has_failed =
      process.state >= v1::PROCESS_STATE_EXITED &&
      !(process.exit.has_value() && EndedWell(*process.exit));
  const bool is_none =
      process.waits() || process.again || process.retired || has_failed;
  return is_none ? 0 : process.incarnation;
}

bool HasWaiting(const AttemptRecord& attempt) {
  return std::any_of(
      attempt.processes.begin(), attempt.processes.end(),
      [](const Process& each) { return each.waits() || each.backs_off(); });
}

bool HoldsRoom(const AttemptRecord& attempt, const Process& process) {
  if (!process.over()) return true;
  return process.backs_off() && !process.waits() &&
         attempt.cause == v1::ATTEMPT_CAUSE_NONE;
}

}  // namespace cohort::head
