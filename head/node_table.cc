#include "head/node_table.h"

#include <utility>

#include "common/check.h"

namespace cohort::head {
namespace {

// What is left of `from` after `what` is gone, nothing less than nothing.
void TakeWhatIsThere(ResourceSet& from, const ResourceSet& what) {
  for (const auto& [name, amount] : what) {
    const Amount there = from.Get(name);
    from.Set(name, there > amount ? there - amount : Amount());
  }
}

}  // namespace

void NodeTable::Put(NodeRecord record) {
  const NodeId id = record.id;
  records_[id] = std::move(record);
  Ledger& ledger = ledgers_[id];
  ledger.offered = false;
  ledger.ghosts.clear();
  snapshot_stale_ = true;
}

void NodeTable::Remove(const NodeId& node) {
  const NodeRecord* record = Find(node);
  COHORT_CHECK(record != nullptr && record->state == NodeState::kDead &&
               ledgers_.at(node).holds.empty())
      << node;
  records_.erase(node);
  ledgers_.erase(node);
}

const NodeRecord* NodeTable::Find(const NodeId& node) const {
  const auto found = records_.find(node);
  return found == records_.end() ? nullptr : &found->second;
}

void NodeTable::Offer(const NodeId& node) {
  COHORT_CHECK(records_.at(node).state == NodeState::kAlive) << node;
  ledgers_.at(node).offered = true;
  snapshot_stale_ = true;
}

void NodeTable::Withdraw(const NodeId& node) {
  ledgers_.at(node).offered = false;
  snapshot_stale_ = true;
}

bool NodeTable::IsOffered(const NodeId& node) const {
  const auto found = ledgers_.find(node);
  return found != ledgers_.end() && found->second.offered;
}

void NodeTable::MarkDead(const NodeId& node) {
  records_.at(node).state = NodeState::kDead;
  Ledger& ledger = ledgers_.at(node);
  ledger.offered = false;
  ledger.ghosts.clear();
  snapshot_stale_ = true;
}

void NodeTable::Hold(const AttemptId& attempt, const AttemptPart& part) {
  Ledger& ledger = ledgers_.at(part.node);
  // Were it a ghost too, its amounts would count twice.
  COHORT_CHECK(!ledger.ghosts.contains(attempt)) << attempt;
  COHORT_CHECK(ledger.holds
                   .emplace(attempt, Held{.resources = part.resources,
                                          .devices = part.devices,
                                          .everything = false})
                   .second)
      << attempt;
  snapshot_stale_ = true;
}

void NodeTable::Release(const AttemptId& attempt, const NodeId& node) {
  const auto found = ledgers_.find(node);
  if (found == ledgers_.end()) return;
  if (found->second.holds.erase(attempt) > 0) snapshot_stale_ = true;
}

void NodeTable::AddGhost(const NodeId& node, const AttemptId& attempt,
                         const AttemptPart* part) {
  Held held{.resources = {}, .devices = {}, .everything = true};
  if (part != nullptr) held = {part->resources, part->devices, false};
  ledgers_.at(node).ghosts.emplace(attempt, std::move(held));
  snapshot_stale_ = true;
}

bool NodeTable::RemoveGhost(const NodeId& node, const AttemptId& attempt) {
  const auto found = ledgers_.find(node);
  if (found == ledgers_.end() || found->second.ghosts.erase(attempt) == 0) {
    return false;
  }
  snapshot_stale_ = true;
  return true;
}

std::vector<AttemptId> NodeTable::GhostsOn(const NodeId& node) const {
  std::vector<AttemptId> ghosts;
  const auto found = ledgers_.find(node);
  if (found == ledgers_.end()) return ghosts;
  for (const auto& [attempt, held] : found->second.ghosts) {
    ghosts.push_back(attempt);
  }
  return ghosts;
}

NodeSnapshot NodeTable::SnapshotOf(const NodeRecord& record) const {
  const Ledger& ledger = ledgers_.at(record.id);
  NodeSnapshot snapshot{.id = record.id,
                        .name = record.name,
                        .total = record.resources,
                        .available = {},
                        .devices = {},
                        .labels = record.labels};
  bool everything_held = !ledger.offered;
  ResourceSet available = record.resources;
  std::map<std::string, Amount> taken;
  for (const auto* held_by : {&ledger.holds, &ledger.ghosts}) {
    for (const auto& [attempt, held] : *held_by) {
      everything_held = everything_held || held.everything;
      TakeWhatIsThere(available, held.resources);
      for (const auto& [id, amount] : held.devices) taken[id] += amount;
    }
  }
  if (!everything_held) snapshot.available = std::move(available);
  const Amount whole = Amount::FromUnits(1);
  for (const Device& device : record.devices) {
    if (device.kind != "gpu") continue;
    Amount free;
    if (!everything_held && taken[device.id] < whole) {
      free = whole - taken[device.id];
    }
    snapshot.devices.push_back({.id = device.id, .free = free});
  }
  return snapshot;
}

ResourceSet NodeTable::AvailableOn(const NodeId& node) const {
  const NodeRecord* record = Find(node);
  if (record == nullptr || !IsOffered(node)) return {};
  return SnapshotOf(*record).available;
}

const std::vector<NodeSnapshot>& NodeTable::Snapshot() const {
  if (snapshot_stale_) {
    snapshot_.clear();
    for (const auto& [id, record] : records_) {
      if (record.state == NodeState::kAlive) {
        snapshot_.push_back(SnapshotOf(record));
      }
    }
    snapshot_stale_ = false;
  }
  return snapshot_;
}

int64_t NodeTable::CountOf(NodeState state) const {
  int64_t count = 0;
  for (const auto& [id, record] : records_) count += record.state == state;
  return count;
}

ResourceSet NodeTable::Total() const {
  ResourceSet total;
  for (const NodeSnapshot& node : Snapshot()) total.Add(node.total);
  return total;
}

ResourceSet NodeTable::Available() const {
  ResourceSet available;
  for (const NodeSnapshot& node : Snapshot()) available.Add(node.available);
  return available;
}

}  // namespace cohort::head
