// NodeState's word to the head: everything, what changed, and what the head has
// recorded of it.

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/resources.h"
#include "worker/node_state.h"

namespace cohort::worker {
namespace {

v1::HeldResources HeldBy(const v1::DesiredAttempt& desired) {
  v1::HeldResources held;
  int64_t per_device = 0;
  for (const auto& each : desired.resources_per_rank().amounts()) {
    auto* const sum = held.mutable_resources()->add_amounts();
    sum->set_name(each.name());
    sum->set_ten_thousandths(each.ten_thousandths() * desired.ranks_size());
    if (each.name() == kGpu) {
      per_device = std::min(each.ten_thousandths(),
                            Amount::FromUnits(1).ten_thousandths());
    }
  }
  std::map<std::string, int64_t> devices;
  for (const v1::DesiredRank& rank : desired.ranks()) {
    for (const std::string& gpu : rank.gpu_ids()) devices[gpu] += per_device;
  }
  for (const auto& [id, amount] : devices) {
    auto* const device = held.add_devices();
    device->set_name(id);
    device->set_ten_thousandths(amount);
  }
  return held;
}

}  // namespace

void NodeState::Acknowledge(const v1::Acknowledge& acknowledge) {
  for (const auto& acknowledged : acknowledge.checkpoints()) {
    const absl::StatusOr<AttemptId> id =
        AttemptId::FromBytes(acknowledged.attempt_id());
    Attempt* attempt = id.ok() ? Find(*id) : nullptr;
    if (attempt == nullptr) continue;
    auto* pending = attempt->observed.mutable_checkpoints();
    const auto committed = [&](const v1::Checkpoint& checkpoint) {
      return std::find(acknowledged.paths().begin(), acknowledged.paths().end(),
                       checkpoint.path()) != acknowledged.paths().end();
    };
    pending->erase(std::remove_if(pending->begin(), pending->end(), committed),
                   pending->end());
    Save(*attempt);
  }
  for (const std::string& bytes : acknowledge.words()) {
    const absl::StatusOr<AttemptId> id = AttemptId::FromBytes(bytes);
    Attempt* const attempt = id.ok() ? Find(*id) : nullptr;
    if (attempt == nullptr) continue;
    attempt->words_recorded = true;
    attempt->words_due = false;
    if (attempt->desired.goal() == v1::GOAL_FORGET) Forget(*attempt);
  }
}

std::vector<v1::Observed> NodeState::FullObserved() {
  dirty_.clear();
  std::vector<v1::Observed> chunks(1);
  size_t bytes = 0;
  for (auto& [id, attempt] : attempts_) {
    if (bytes >= message_bytes_) {
      chunks.back().set_more(true);
      chunks.emplace_back();
      bytes = 0;
    }
    v1::ObservedAttempt* const report = chunks.back().add_attempts();
    *report = StateOf(attempt);
    *report->mutable_held() = HeldBy(attempt.desired);
    bytes += report->ByteSizeLong();
    attempt.words_due = HasUnrecordedWords(attempt);
    attempt.exchanges_told = 0;
    const bool gave = attempt.observed.exchanges_size() > 0 &&
                      attempt.observed.phase() != v1::PHASE_ENDED;
    if (attempt.words_due || gave) dirty_.insert(id);
  }
  for (v1::Observed& chunk : chunks) chunk.set_full(true);
  return chunks;
}

v1::Observed NodeState::TakeDelta() {
  v1::Observed observed;
  size_t bytes = 0;
  while (!dirty_.empty() && bytes < message_bytes_) {
    const AttemptId id = *dirty_.begin();
    v1::ObservedAttempt* const report = observed.add_attempts();
    if (!TellDelta(attempts_.at(id), *report)) break;
    dirty_.erase(id);
    bytes += report->ByteSizeLong();
  }
  return observed;
}

v1::ObservedAttempt NodeState::StateOf(Attempt& attempt) {
  // Megabytes that would only be copied to be dropped.
  google::protobuf::RepeatedPtrField<v1::PendingExchange> given;
  given.Swap(attempt.observed.mutable_exchanges());
  v1::ObservedAttempt state = attempt.observed;
  given.Swap(attempt.observed.mutable_exchanges());
  state.clear_stderr_tail();
  return state;
}

bool NodeState::TellDelta(Attempt& attempt, v1::ObservedAttempt& report) {
  report = StateOf(attempt);
  if (std::exchange(attempt.words_due, false)) {
    report.set_stderr_tail(attempt.observed.stderr_tail());
  }
  const auto& given = attempt.observed.exchanges();
  size_t bytes = 0;
  while (attempt.exchanges_told < given.size() && bytes < message_bytes_) {
    const v1::PendingExchange& next = given[attempt.exchanges_told++];
    *report.add_exchanges() = next;
    bytes += next.ByteSizeLong();
  }
  return attempt.exchanges_told == given.size();
}

}  // namespace cohort::worker
