#include "head/node_table.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/check.h"

namespace cohort::head {
namespace {

// What is left of `from` after `what` is gone, nothing less than nothing.
ResourceSet LeftOf(ResourceSet from, const ResourceSet& what) {
  for (const auto& [name, amount] : what) {
    const Amount there = from.Get(name);
    from.Set(name, there > amount ? there - amount : Amount());
  }
  return from;
}

bool IsGpu(const Device& device) { return device.kind == "gpu"; }

// The model that all GPUs of a node have.
std::string AcceleratorOf(const NodeRecord& record) {
  std::optional<std::string> model;
  for (const Device& device : record.devices) {
    if (!IsGpu(device)) continue;
    if (model.has_value() && *model != device.model) return "";
    model = device.model;
  }
  return model.value_or("");
}

NodeGate GateOf(const NodeRecord& record, bool offered) {
  if (record.drain.has_value()) return NodeGate::kDrained;
  if (record.state == NodeState::kSuspect) return NodeGate::kSuspect;
  return offered ? NodeGate::kOpen : NodeGate::kAbsent;
}

}  // namespace

// ---- ledgers ----

void NodeTable::Ledger::Charge(const Held& held) {
  resources.Add(held.resources);
  for (const auto& [id, amount] : held.devices) devices[id] += amount;
  everything += held.everything ? 1 : 0;
}

void NodeTable::Ledger::Refund(const Held& held) {
  COHORT_CHECK(resources.Take(held.resources)) << held.resources;
  for (const auto& [id, amount] : held.devices) {
    const auto charged = devices.find(id);
    charged->second -= amount;
    if (charged->second.IsZero()) devices.erase(charged);
  }
  everything -= held.everything ? 1 : 0;
}

void NodeTable::Ledger::ForgetGhosts() {
  for (const auto& [attempt, held] : ghosts) Refund(held);
  ghosts.clear();
}

// ---- nodes ----

void NodeTable::Put(NodeRecord record) {
  const NodeId id = record.id;
  if (const NodeRecord* known = Find(id)) --counts_[known->state];
  ++counts_[record.state];
  records_[id] = std::move(record);
  Ledger& ledger = ledgers_[id];
  ledger.offered = false;
  ledger.ForgetGhosts();
  Refresh(id);
}

void NodeTable::Remove(const NodeId& node) {
  const NodeRecord* record = Find(node);
  COHORT_CHECK(record != nullptr && record->state == NodeState::kDead &&
               ledgers_.at(node).holds.empty())
      << node;
  --counts_[record->state];
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
  Refresh(node);
}

void NodeTable::Withdraw(const NodeId& node) {
  ledgers_.at(node).offered = false;
  Refresh(node);
}

bool NodeTable::IsOffered(const NodeId& node) const {
  const auto found = ledgers_.find(node);
  return found != ledgers_.end() && found->second.offered;
}

void NodeTable::MarkDead(const NodeId& node) {
  Ledger& ledger = ledgers_.at(node);
  ledger.offered = false;
  ledger.ForgetGhosts();
  Move(node, NodeState::kDead);
}

void NodeTable::MarkSuspect(const NodeId& node) {
  COHORT_CHECK(records_.at(node).state != NodeState::kDead) << node;
  Move(node, NodeState::kSuspect);
}

void NodeTable::MarkAlive(const NodeId& node) {
  COHORT_CHECK(records_.at(node).state != NodeState::kDead) << node;
  Move(node, NodeState::kAlive);
}

void NodeTable::Move(const NodeId& node, NodeState to) {
  NodeRecord& record = records_.at(node);
  --counts_[record.state];
  record.state = to;
  ++counts_[record.state];
  Refresh(node);
}

void NodeTable::SetDrain(const NodeId& node, std::optional<Drain> drain) {
  records_.at(node).drain = std::move(drain);
  Refresh(node);
}

void NodeTable::SetSince(const NodeId& node, absl::Time since) {
  records_.at(node).since = since;
}

void NodeTable::Hold(const AttemptId& attempt, const AttemptPart& part) {
  Ledger& ledger = ledgers_.at(part.node);
  // Were it a ghost too, its amounts would count twice.
  COHORT_CHECK(!ledger.ghosts.contains(attempt)) << attempt;
  const auto [hold, fresh] =
      ledger.holds.emplace(attempt, Held{.resources = part.resources,
                                         .devices = part.devices,
                                         .everything = false});
  COHORT_CHECK(fresh) << attempt;
  ledger.Charge(hold->second);
  Refresh(part.node);
}

void NodeTable::Release(const AttemptId& attempt, const NodeId& node) {
  const auto found = ledgers_.find(node);
  if (found == ledgers_.end()) return;
  Ledger& ledger = found->second;
  const auto hold = ledger.holds.find(attempt);
  if (hold == ledger.holds.end()) return;
  ledger.Refund(hold->second);
  ledger.holds.erase(hold);
  Refresh(node);
}

bool NodeTable::AddGhost(const NodeId& node, const AttemptId& attempt,
                         const AttemptPart* part) {
  Held held{.resources = {}, .devices = {}, .everything = true};
  if (part != nullptr) held = {part->resources, part->devices, false};
  Ledger& ledger = ledgers_.at(node);
  const auto [ghost, fresh] = ledger.ghosts.emplace(attempt, std::move(held));
  if (!fresh) return false;
  ledger.Charge(ghost->second);
  Refresh(node);
  return true;
}

bool NodeTable::RemoveGhost(const NodeId& node, const AttemptId& attempt) {
  const auto found = ledgers_.find(node);
  if (found == ledgers_.end()) return false;
  Ledger& ledger = found->second;
  const auto ghost = ledger.ghosts.find(attempt);
  if (ghost == ledger.ghosts.end()) return false;
  ledger.Refund(ghost->second);
  ledger.ghosts.erase(ghost);
  Refresh(node);
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

std::map<AttemptId, ResourceSet> NodeTable::HeldOn(const NodeId& node) const {
  std::map<AttemptId, ResourceSet> held;
  const auto found = ledgers_.find(node);
  if (found == ledgers_.end()) return held;
  for (const auto& [attempt, what] : found->second.holds) {
    held.emplace(attempt, what.resources);
  }
  return held;
}

size_t NodeTable::GhostCountOn(const NodeId& node) const {
  const auto found = ledgers_.find(node);
  return found == ledgers_.end() ? 0 : found->second.ghosts.size();
}

bool NodeTable::IsEmpty(const NodeId& node) const {
  const auto found = ledgers_.find(node);
  return found == ledgers_.end() ||
         (found->second.holds.empty() && found->second.ghosts.empty());
}

// ---- what is free ----

NodeSnapshot NodeTable::SnapshotOf(const NodeRecord& record,
                                   const Ledger& ledger, NodeGate gate) {
  NodeSnapshot snapshot{.id = record.id,
                        .name = record.name,
                        .total = record.resources,
                        .available = {},
                        .devices = {},
                        .labels = record.labels,
                        .taints = record.taints,
                        .accelerator = AcceleratorOf(record),
                        .gate = gate};
  std::sort(snapshot.taints.begin(), snapshot.taints.end());
  const bool nothing =
      snapshot.gate != NodeGate::kOpen || ledger.everything > 0;
  if (!nothing) {
    snapshot.available = LeftOf(record.resources, ledger.resources);
  }
  const Amount whole = Amount::FromUnits(1);
  for (const Device& device : record.devices) {
    if (!IsGpu(device)) continue;
    const auto taken = ledger.devices.find(device.id);
    Amount free = taken == ledger.devices.end() ? whole
                  : taken->second < whole       ? whole - taken->second
                                                : Amount();
    if (nothing) free = Amount();
    snapshot.devices.push_back({.id = device.id, .free = free});
  }
  return snapshot;
}

void NodeTable::Refresh(const NodeId& node) {
  const NodeRecord& record = records_.at(node);
  if (record.state == NodeState::kDead) {
    index_.Remove(node);
  } else {
    const Ledger& ledger = ledgers_.at(node);
    index_.Put(SnapshotOf(record, ledger, GateOf(record, ledger.offered)));
  }
}

NodeSnapshot NodeTable::Imagine(const NodeId& node,
                                const std::set<AttemptId>& without) const {
  Ledger ledger = ledgers_.at(node);
  for (const AttemptId& attempt : without) {
    const auto hold = ledger.holds.find(attempt);
    if (hold != ledger.holds.end()) ledger.Refund(hold->second);
  }
  return SnapshotOf(records_.at(node), ledger, NodeGate::kOpen);
}

ResourceSet NodeTable::AvailableOn(const NodeId& node) const {
  const NodeSnapshot* snapshot = index_.Find(node);
  return snapshot == nullptr ? ResourceSet() : snapshot->available;
}

int64_t NodeTable::HoldCount() const {
  size_t count = 0;
  for (const auto& [node, ledger] : ledgers_) count += ledger.holds.size();
  return static_cast<int64_t>(count);
}

int64_t NodeTable::CountOf(NodeState state) const {
  const auto found = counts_.find(state);
  return found == counts_.end() ? 0 : found->second;
}

size_t NodeTable::DrainedCount() const {
  size_t count = 0;
  for (const auto& [id, record] : records_) count += record.drain.has_value();
  return count;
}

ShownNodeState NodeTable::ShownState(const NodeId& node) const {
  return ShownStateOf(records_.at(node), IsEmpty(node));
}

ResourceSet NodeTable::Total() const {
  ResourceSet total;
  for (const auto& [form, bucket] : index_.all().buckets()) {
    total.Add(form->total.Times(static_cast<int64_t>(bucket.nodes.size())));
  }
  return total;
}

ResourceSet NodeTable::Available() const {
  ResourceSet available;
  for (const auto& [form, bucket] : index_.all().buckets()) {
    available.Add(
        form->available.Times(static_cast<int64_t>(bucket.nodes.size())));
  }
  return available;
}

}  // namespace cohort::head
