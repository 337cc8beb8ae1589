// NodeState's word to the head: everything, what changed, and what the head has
// recorded of it; and what the journal keeps.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/log.h"
#include "worker/node_state.h"

namespace cohort::worker {

bool NodeState::IsFull(const v1::Observed& message, size_t bytes) const {
  // The head takes a message as one decision, which has a bound (BD-1).
  constexpr int kPlacesAMessage = 256;
  return bytes >= message_bytes_ || message.places_size() >= kPlacesAMessage;
}

void NodeState::Acknowledge(const v1::Acknowledge& acknowledge) {
  for (const auto& acknowledged : acknowledge.checkpoints()) {
    const absl::StatusOr<AttemptId> id =
        AttemptId::FromBytes(acknowledged.attempt_id());
    Place* const place = id.ok() ? Find(*id) : nullptr;
    if (place == nullptr) continue;
    auto* pending = place->observed.mutable_checkpoints();
    const auto committed = [&](const v1::Checkpoint& checkpoint) {
      return std::find(acknowledged.paths().begin(), acknowledged.paths().end(),
                       checkpoint.path()) != acknowledged.paths().end();
    };
    pending->erase(std::remove_if(pending->begin(), pending->end(), committed),
                   pending->end());
    Save(*place, Durability::kDaemon);
  }
  for (const v1::ProcessId& words : acknowledge.words()) {
    const absl::StatusOr<AttemptId> id =
        AttemptId::FromBytes(words.attempt_id());
    Process* const process =
        id.ok() ? Find(ProcessId{*id, words.slot(), words.incarnation()})
                : nullptr;
    if (process == nullptr) continue;
    process->words_recorded = true;
    process->words_due = false;
    if (process->desired.goal() == v1::GOAL_FORGET) Drive(*id);
  }
}

std::vector<v1::Observed> NodeState::FullObserved() {
  dirty_.clear();
  std::vector<v1::Observed> chunks(1);
  size_t bytes = 0;
  for (auto& [id, place] : places_) {
    if (IsFull(chunks.back(), bytes)) {
      chunks.back().set_more(true);
      chunks.emplace_back();
      bytes = 0;
    }
    v1::ObservedPlace* const report = chunks.back().add_places();
    *report = StateOf(place);
    *report->mutable_resources_per_process() =
        place.desired.resources_per_process();
    bytes += report->ByteSizeLong();
    place.exchanges_told = 0;
    bool has_more = place.observed.exchanges_size() > 0;
    for (auto& [key, process] : place.processes) {
      process.words_due = HasUnrecordedWords(process);
      has_more = has_more || process.words_due;
    }
    if (has_more) dirty_.insert(id);
  }
  for (v1::Observed& chunk : chunks) chunk.set_full(true);
  return chunks;
}

v1::Observed NodeState::TakeDelta() {
  v1::Observed observed;
  for (v1::ObservedPlace& each : std::exchange(last_reports_, {})) {
    observed.add_places()->Swap(&each);
  }
  size_t bytes = 0;
  while (!dirty_.empty() && !IsFull(observed, bytes)) {
    const AttemptId id = *dirty_.begin();
    v1::ObservedPlace* const report = observed.add_places();
    if (!TellDelta(places_.at(id), *report)) break;
    dirty_.erase(id);
    bytes += report->ByteSizeLong();
  }
  return observed;
}

v1::ObservedPlace NodeState::StateOf(Place& place) {
  // Megabytes that would only be copied to be dropped.
  google::protobuf::RepeatedPtrField<v1::PendingExchange> given;
  given.Swap(place.observed.mutable_exchanges());
  v1::ObservedPlace state = place.observed;
  given.Swap(place.observed.mutable_exchanges());
  for (auto& [key, process] : place.processes) {
    std::string words;
    words.swap(*process.observed.mutable_stderr_tail());
    *state.add_processes() = process.observed;
    words.swap(*process.observed.mutable_stderr_tail());
  }
  return state;
}

bool NodeState::TellDelta(Place& place, v1::ObservedPlace& report) {
  report = StateOf(place);
  size_t bytes = 0;
  int index = 0;
  for (auto& [key, process] : place.processes) {
    v1::ObservedProcess& told = *report.mutable_processes(index++);
    if (!process.words_due) continue;
    if (bytes >= message_bytes_) return false;
    process.words_due = false;
    told.set_stderr_tail(process.observed.stderr_tail());
    bytes += told.stderr_tail().size();
  }
  const auto& given = place.observed.exchanges();
  while (place.exchanges_told < given.size() && bytes < message_bytes_) {
    const v1::PendingExchange& next = given[place.exchanges_told++];
    *report.add_exchanges() = next;
    bytes += next.ByteSizeLong();
  }
  return place.exchanges_told == given.size();
}

// ---- small things ----

void NodeState::Changed(const Place& place) {
  dirty_.insert(place.id);
  events_.on_change();
}

PlaceEntry NodeState::EntryOf(const Place& place) {
  PlaceEntry entry{place.desired, place.observed};
  for (const auto& [slot, incarnation] : place.begun) {
    v1::DesiredProcess* const begun = entry.desired.add_processes();
    begun->set_slot(slot);
    begun->set_incarnation(incarnation);
  }
  return entry;
}

void NodeState::Save(Place& place, Durability durability) {
  if (place.forgetting) return;  // it would come back to life
  host_.Save(place.id, EntryOf(place), durability,
             [id = place.id](const absl::Status& status) {
               if (status.ok()) return;
               COHORT_LOG(kWarning, "journal_not_saved", {"attempt", id},
                          {"error", status.ToString()});
             });
}

void NodeState::Save(Place& place, Process& process, Durability durability) {
  if (place.forgetting || process.forgetting) return;
  host_.Save(process.id, ProcessEntry{process.begun, process.observed},
             durability, [id = process.id](const absl::Status& status) {
               if (status.ok()) return;
               // What is lost is told again by the keeper's own records.
               COHORT_LOG(kWarning, "journal_not_saved", {"process", id},
                          {"error", status.ToString()});
             });
}

NodeState::Place* NodeState::Find(const AttemptId& id) {
  const auto found = places_.find(id);
  return found == places_.end() ? nullptr : &found->second;
}

const NodeState::Process* NodeState::Find(const ProcessId& id) const {
  const auto place = places_.find(id.attempt);
  if (place == places_.end()) return nullptr;
  const auto found = place->second.processes.find({id.slot, id.incarnation});
  return found == place->second.processes.end() ? nullptr : &found->second;
}

NodeState::Process* NodeState::Find(const ProcessId& id) {
  return const_cast<Process*>(std::as_const(*this).Find(id));
}

}  // namespace cohort::worker
