#include "head/state/node_table.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "common/status_util.h"
#include "rpc/enum_text.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

// What is left of `from` after `what` is gone, nothing less than nothing.
ResourceSet LeftOf(ResourceSet from, const ResourceSet& what) {
  if (from.Take(what)) return from;
  for (const auto& [name, amount] : what) {
    const Amount there = from.Get(name);
    from.Set(name, there > amount ? there - amount : Amount());
  }
  return from;
}

// Whether the sum stays within the bounds of an Amount: it could not be given
// back otherwise.
bool CanAdd(const ResourceSet& sum, const ResourceSet& what) {
  const Amount most =
      Amount::FromTenThousandths(std::numeric_limits<int64_t>::max());
  return std::all_of(what.begin(), what.end(), [&](const auto& entry) {
    return sum.Get(entry.first) <= most - entry.second;
  });
}

// Whether `all` is enough for it; its sum may be beyond the bounds of an
// Amount.
bool Holds(const ResourceSet& all, const NodeTable::Held& held) {
  const auto count =
      std::max<int64_t>(static_cast<int64_t>(held.processes.size()), 1);
  return std::all_of(held.each.begin(), held.each.end(),
                     [&](const auto& entry) {
                       return entry.second.ten_thousandths() <=
                              all.Get(entry.first).ten_thousandths() / count;
                     });
}

// What people are told of a node, by its row.  That it cannot be heard comes
// first: a drained node that is dead is DEAD, its drain is still in the record.
// Then what a person wants, then what it says of itself.  `empty`: it holds
// nothing, orphans included.
NodeState ShownStateOf(const NodeRecord& node, bool empty) {
  if (node.state != v1::NODE_STATE_ALIVE) return node.state;
  if (!node.node.has_drain()) {
    return node.node.not_ready().empty() ? v1::NODE_STATE_ALIVE
                                         : v1::NODE_STATE_NOT_READY;
  }
  return empty ? v1::NODE_STATE_DRAINED : v1::NODE_STATE_DRAINING;
}

bool IsGpu(const Device& device) { return device.kind() == "gpu"; }

bool IsRealGpu(const Device& device) {
  return IsGpu(device) && !device.simulated();
}

// The model that all GPUs of a node have.
std::string AcceleratorOf(const v1::Node& node) {
  const std::string* model = nullptr;
  for (const Device& device : node.devices()) {
    if (!IsGpu(device)) continue;
    if (model != nullptr && *model != device.model()) return "";
    model = &device.model();
  }
  return model == nullptr ? "" : *model;
}

NodeSnapshot IdleOf(const NodeRecord& record) {
  const v1::Node& node = record.node;
  NodeSnapshot snapshot{.id = record.id,
                        .name = node.name(),
                        .labels = {node.labels().begin(), node.labels().end()},
                        .accelerator = AcceleratorOf(node)};
  for (const auto& amount : node.resources().amounts()) {
    snapshot.total.Set(amount.name(),
                       Amount::FromTenThousandths(amount.ten_thousandths()));
  }
  for (const v1::Taint& taint : node.taints()) {
    snapshot.taints.push_back(rpc::FromWire(taint));
  }
  std::sort(snapshot.taints.begin(), snapshot.taints.end());
  return snapshot;
}

NodeGate GateOf(const NodeRecord& record, bool offered) {
  if (record.node.has_drain()) return NodeGate::kDrained;
  if (record.state == v1::NODE_STATE_SUSPECT) return NodeGate::kSuspect;
  if (!offered) return NodeGate::kAbsent;
  return record.node.not_ready().empty() ? NodeGate::kOpen
                                         : NodeGate::kNotReady;
}

}  // namespace

const Device* FindDevice(const NodeRecord& node, const std::string& id) {
  for (const Device& device : node.node.devices()) {
    if (device.id() == id) return &device;
  }
  return nullptr;
}

// ---- ledgers ----

// Nothing of a device is not kept: nodes say such things of their attempts.
void NodeTable::Ledger::Charge(const Held& held) {
  everything += held.everything ? 1 : 0;
  if (held.everything) return;
  resources.Add(held.resources());
  for (const auto& [process, shares] : held.processes) {
    for (const auto& [id, amount] : shares) {
      if (!amount.IsZero()) devices[id] += amount;
    }
  }
}

void NodeTable::Ledger::Refund(const Held& held) {
  everything -= held.everything ? 1 : 0;
  if (held.everything) return;
  COHORT_CHECK(resources.Take(held.resources())) << held.each;
  for (const auto& [process, shares] : held.processes) RefundDevices(shares);
}

void NodeTable::Ledger::RefundDevices(
    const std::map<std::string, Amount>& shares) {
  for (const auto& [id, amount] : shares) {
    if (amount.IsZero()) continue;
    const auto charged = devices.find(id);
    COHORT_CHECK(charged != devices.end()) << id;
    charged->second -= amount;
    if (charged->second.IsZero()) devices.erase(charged);
  }
}

void NodeTable::Ledger::ForgetOrphans() {
  for (const auto& [attempt, held] : orphans) Refund(held);
  orphans.clear();
  orphan_jobs.clear();
  orphan_events.clear();
}

// ---- nodes ----

void NodeTable::Put(NodeRecord record) {
  const NodeId id = record.id;
  if (const NodeRecord* known = Find(id)) {
    --counts_[known->state];
    ForgetGpus(*known);
  }
  ++counts_[record.state];
  if (record.state != v1::NODE_STATE_DEAD) {
    for (const Device& device : record.node.devices()) {
      if (IsRealGpu(device)) gpus_.emplace(device.id(), id);
    }
  }
  NodeRecord& place = records_[id];
  place = std::move(record);
  by_id_[id] = &place;
  Ledger& ledger = ledgers_[id];
  ledger.idle = IdleOf(place);
  ledger.offered = false;
  ledger.ForgetOrphans();
  for (auto it = ledger.device_events.begin();
       it != ledger.device_events.end();) {
    const auto at = it++;
    if (FindDevice(place, at->first) == nullptr) ledger.device_events.erase(at);
  }
  Refresh(id);
}

void NodeTable::Remove(const NodeId& node) {
  const NodeRecord* record = Find(node);
  COHORT_CHECK(record != nullptr && record->state == v1::NODE_STATE_DEAD &&
               ledgers_.at(node).holds.empty())
      << node;
  ++version_;
  --counts_[record->state];
  by_id_.erase(node);
  records_.erase(node);
  ledgers_.erase(node);
}

const NodeRecord* NodeTable::Find(const NodeId& node) const {
  const auto found = by_id_.find(node);
  return found == by_id_.end() ? nullptr : found->second;
}

void NodeTable::Offer(const NodeId& node) {
  COHORT_CHECK(records_.at(node).state == v1::NODE_STATE_ALIVE) << node;
  Ledger& ledger = ledgers_.at(node);
  ledger.offered = true;
  ledger.away_since = absl::InfinitePast();
  Refresh(node);
}

void NodeTable::Withdraw(const NodeId& node, absl::Time now) {
  Ledger& ledger = ledgers_.at(node);
  const bool is_away = ledger.away_since != absl::InfinitePast();
  if (!ledger.offered && is_away) return;  // it says so with each heartbeat
  ledger.offered = false;
  ledger.away_since = now;
  Refresh(node);
}

absl::Time NodeTable::AwaySince(const NodeId& node) const {
  const auto found = ledgers_.find(node);
  return found == ledgers_.end() ? absl::InfinitePast()
                                 : found->second.away_since;
}

bool NodeTable::IsOffered(const NodeId& node) const {
  const auto found = ledgers_.find(node);
  return found != ledgers_.end() && found->second.offered;
}

void NodeTable::MarkDead(const NodeId& node) {
  Ledger& ledger = ledgers_.at(node);
  ledger.offered = false;
  ledger.ForgetOrphans();
  ledger.samples.clear();
  NodeRecord& record = records_.at(node);
  record.node.clear_not_ready();
  ForgetGpus(record);
  Move(node, v1::NODE_STATE_DEAD);
}

void NodeTable::ForgetGpus(const NodeRecord& record) {
  for (const Device& device : record.node.devices()) {
    const auto found = gpus_.find(device.id());
    if (found != gpus_.end() && found->second == record.id) gpus_.erase(found);
  }
}

absl::Status NodeTable::CheckGpus(const NodeId& id,
                                  const v1::Node& node) const {
  for (const Device& device : node.devices()) {
    const auto found = gpus_.find(device.id());
    if (!IsRealGpu(device) || found == gpus_.end() || found->second == id) {
      continue;
    }
    const NodeRecord& other = records_.at(found->second);
    return SetReason(
        absl::FailedPreconditionError(absl::StrCat(
            "the node offers GPU ", device.id(), ", which node ",
            other.node.name(), " (", other.id.ToHex(),
            ") offers already: workers on one machine divide its GPUs with "
            "--share; when that node is gone, this one is accepted once it is "
            "declared dead")),
        "gpu_offered_twice");
  }
  return absl::OkStatus();
}

void NodeTable::MarkSuspect(const NodeId& node) {
  COHORT_CHECK(records_.at(node).state != v1::NODE_STATE_DEAD) << node;
  Move(node, v1::NODE_STATE_SUSPECT);
}

void NodeTable::MarkAlive(const NodeId& node) {
  COHORT_CHECK(records_.at(node).state != v1::NODE_STATE_DEAD) << node;
  Move(node, v1::NODE_STATE_ALIVE);
}

void NodeTable::Move(const NodeId& node, NodeState to) {
  NodeRecord& record = records_.at(node);
  --counts_[record.state];
  record.state = to;
  ++counts_[record.state];
  Refresh(node);
}

void NodeTable::SetDrain(const NodeId& node,
                         const std::optional<Drain>& drain) {
  v1::Node& row = records_.at(node).node;
  row.clear_drain();
  if (drain.has_value()) *row.mutable_drain() = *drain;
  Refresh(node);
}

void NodeTable::SetNotReady(const NodeId& node, std::string why) {
  records_.at(node).node.set_not_ready(std::move(why));
  Refresh(node);
}

const std::string& NodeTable::NotReadyBecause(const NodeId& node) const {
  static const std::string* const kFit = new std::string;
  const NodeRecord* record = Find(node);
  return record == nullptr ? *kFit : record->node.not_ready();
}

void NodeTable::SetDeviceState(const NodeId& node,
                               const v1::DeviceStatus& device, absl::Time now) {
  auto& devices = *records_.at(node).node.mutable_devices();
  const auto found = std::find_if(
      devices.begin(), devices.end(),
      [&device](const Device& each) { return each.id() == device.id(); });
  COHORT_CHECK(found != devices.end()) << device.id();
  if (found->state() != device.state()) {
    *found->mutable_since() = rpc::ToWire(now);
  }
  found->set_state(device.state());
  found->set_reason(device.reason());
  Refresh(node);
}

void NodeTable::SetDeviceEvent(const NodeId& node, const std::string& device,
                               uint64_t event) {
  ledgers_.at(node).device_events[device] = event;
}

uint64_t NodeTable::DeviceEvent(const NodeId& node,
                                const std::string& device) const {
  const auto ledger = ledgers_.find(node);
  if (ledger == ledgers_.end()) return 0;
  const auto event = ledger->second.device_events.find(device);
  return event == ledger->second.device_events.end() ? 0 : event->second;
}

void NodeTable::SetSamples(const NodeId& node,
                           std::vector<v1::DeviceStatus> devices) {
  ledgers_.at(node).samples = std::move(devices);
}

const v1::DeviceSample* NodeTable::SampleOf(const NodeId& node,
                                            const std::string& device) const {
  const auto ledger = ledgers_.find(node);
  if (ledger == ledgers_.end()) return nullptr;
  for (const v1::DeviceStatus& each : ledger->second.samples) {
    if (each.id() == device) return &each.sample();
  }
  return nullptr;
}

std::map<AttemptId, Amount> NodeTable::HoldersOf(
    const NodeId& node, const std::string& device) const {
  std::map<AttemptId, Amount> holders;
  const auto ledger = ledgers_.find(node);
  if (ledger == ledgers_.end()) return holders;
  for (const auto* held : {&ledger->second.holds, &ledger->second.orphans}) {
    for (const auto& [attempt, what] : *held) {
      for (const auto& [process, devices] : what.processes) {
        const auto amount = devices.find(device);
        if (amount != devices.end()) holders[attempt] += amount->second;
      }
    }
  }
  return holders;
}

void NodeTable::SetSince(const NodeId& node, absl::Time since) {
  *records_.at(node).node.mutable_since() = rpc::ToWire(since);
}

std::vector<NodeId> NodeTable::TakeRestated() {
  std::vector<NodeId> restated;
  for (const NodeId& node : std::exchange(restated_, {})) {
    const auto ledger = ledgers_.find(node);
    if (ledger == ledgers_.end()) continue;
    const NodeState now = ShownStateOf(records_.at(node), IsEmpty(node));
    if (std::exchange(ledger->second.told, now) != now) {
      restated.push_back(node);
    }
  }
  return restated;
}

void NodeTable::SetCause(const NodeId& node, uint64_t event) {
  records_.at(node).cause = event;
}

void NodeTable::Hold(const AttemptId& attempt, const NodeId& node, Held held) {
  Ledger& ledger = ledgers_.at(node);
  ledger.Charge(held);
  Held& hold = ledger.holds[attempt];
  hold.each = std::move(held.each);
  for (auto& [process, devices] : held.processes) {
    COHORT_CHECK(hold.processes.emplace(process, std::move(devices)).second)
        << attempt << " " << process.first;
  }
  Refresh(node);
}

void NodeTable::Release(const AttemptId& attempt, const NodeId& node,
                        const Incarnation& process) {
  const auto found = ledgers_.find(node);
  if (found == ledgers_.end()) return;
  Ledger& ledger = found->second;
  const auto hold = ledger.holds.find(attempt);
  if (hold == ledger.holds.end()) return;
  Held& held = hold->second;
  const auto one = held.processes.find(process);
  if (one == held.processes.end()) return;
  COHORT_CHECK(ledger.resources.Take(held.each)) << held.each;
  ledger.RefundDevices(one->second);
  held.processes.erase(one);
  if (held.processes.empty()) ledger.holds.erase(hold);
  Refresh(node);
}

bool NodeTable::SetOrphan(const NodeId& node, const AttemptId& attempt,
                          const JobId& job, Held held) {
  if (held.processes.empty() && !held.everything) {
    RemoveOrphan(node, attempt);
    return false;
  }
  Ledger& ledger = ledgers_.at(node);
  const auto [orphan, fresh] = ledger.orphans.try_emplace(attempt);
  if (!fresh) ledger.Refund(orphan->second);
  // What all of the node could not hold is a lie, or it became smaller.  With
  // what is held there it may be more than the node: rows of a restored store
  // hold what has long ended.
  held.everything = held.everything || !Holds(ResourcesOf(node), held) ||
                    !CanAdd(ledger.resources, held.resources());
  orphan->second = std::move(held);
  if (!job.IsNil()) ledger.orphan_jobs[attempt] = job;
  ledger.Charge(orphan->second);
  Refresh(node);
  return fresh;
}

const NodeTable::Held* NodeTable::FindOrphan(const NodeId& node,
                                             const AttemptId& attempt) const {
  const auto ledger = ledgers_.find(node);
  if (ledger == ledgers_.end()) return nullptr;
  const auto orphan = ledger->second.orphans.find(attempt);
  return orphan == ledger->second.orphans.end() ? nullptr : &orphan->second;
}

bool NodeTable::RemoveOrphan(const NodeId& node, const AttemptId& attempt) {
  const auto found = ledgers_.find(node);
  if (found == ledgers_.end()) return false;
  Ledger& ledger = found->second;
  const auto orphan = ledger.orphans.find(attempt);
  if (orphan == ledger.orphans.end()) return false;
  ledger.Refund(orphan->second);
  ledger.orphans.erase(orphan);
  ledger.orphan_jobs.erase(attempt);
  ledger.orphan_events.erase(attempt);
  Refresh(node);
  return true;
}

void NodeTable::SetOrphanEvent(const NodeId& node, const AttemptId& attempt,
                               uint64_t event) {
  const auto found = ledgers_.find(node);
  if (found == ledgers_.end() || !found->second.orphans.contains(attempt))
    return;
  found->second.orphan_events[attempt] = event;
}

uint64_t NodeTable::OrphanEvent(const NodeId& node,
                                const AttemptId& attempt) const {
  const auto ledger = ledgers_.find(node);
  if (ledger == ledgers_.end()) return 0;
  const auto event = ledger->second.orphan_events.find(attempt);
  return event == ledger->second.orphan_events.end() ? 0 : event->second;
}

std::vector<AttemptId> NodeTable::WithoutRoom(
    const NodeId& node, const std::vector<AttemptId>& unbegun) const {
  // The usual case; the copy below is of all that a node may name.
  if (unbegun.empty()) return {};
  Ledger rest = ledgers_.at(node);
  const ResourceSet& total = rest.idle.total;
  const Amount whole = Amount::FromUnits(1);
  std::vector<AttemptId> without;
  for (const AttemptId& attempt : unbegun) {
    const auto hold = rest.holds.find(attempt);
    if (hold == rest.holds.end()) continue;
    const Held& held = hold->second;
    const ResourceSet lack = total.Shortfall(rest.resources);
    const auto is_shared = [&](const auto& process) {
      return std::any_of(process.second.begin(), process.second.end(),
                         [&](const auto& device) {
                           return rest.devices.at(device.first) > whole;
                         });
    };
    const bool has_room =
        rest.everything == 0 &&
        std::none_of(held.processes.begin(), held.processes.end(), is_shared) &&
        std::none_of(lack.begin(), lack.end(), [&](const auto& amount) {
          return !held.each.Get(amount.first).IsZero();
        });
    if (has_room) continue;
    without.push_back(attempt);
    rest.Refund(held);
    rest.holds.erase(hold);
  }
  return without;
}

std::vector<AttemptId> NodeTable::OrphansOn(const NodeId& node) const {
  std::vector<AttemptId> orphans;
  const auto found = ledgers_.find(node);
  if (found == ledgers_.end()) return orphans;
  for (const auto& [attempt, held] : found->second.orphans) {
    orphans.push_back(attempt);
  }
  return orphans;
}

std::map<AttemptId, ResourceSet> NodeTable::HeldOn(const NodeId& node) const {
  std::map<AttemptId, ResourceSet> held;
  const auto found = ledgers_.find(node);
  if (found == ledgers_.end()) return held;
  for (const auto& [attempt, what] : found->second.holds) {
    held.emplace(attempt, what.resources());
  }
  return held;
}

std::map<JobId, ResourceSet> NodeTable::HeldByOrphansOn(
    const NodeId& node) const {
  std::map<JobId, ResourceSet> held_by_job;
  const auto found = ledgers_.find(node);
  if (found == ledgers_.end()) return held_by_job;
  const Ledger& ledger = found->second;
  for (const auto& [attempt, job] : ledger.orphan_jobs) {
    const Held& held = ledger.orphans.at(attempt);
    // Beside one that holds everything nothing else matters.
    if (held.everything) {
      held_by_job[job] = ledger.idle.total;
    } else if (CanAdd(held_by_job[job], held.resources())) {
      held_by_job[job].Add(held.resources());
    }
  }
  return held_by_job;
}

size_t NodeTable::OrphanCountOn(const NodeId& node) const {
  const auto found = ledgers_.find(node);
  return found == ledgers_.end() ? 0 : found->second.orphans.size();
}

bool NodeTable::IsEmpty(const NodeId& node) const {
  const auto found = ledgers_.find(node);
  return found == ledgers_.end() ||
         (found->second.holds.empty() && found->second.orphans.empty());
}

// ---- what is free ----

NodeSnapshot NodeTable::SnapshotOf(const NodeRecord& record,
                                   const Ledger& ledger, NodeGate gate) {
  NodeSnapshot snapshot = ledger.idle;
  snapshot.gate = gate;
  const bool nothing =
      snapshot.gate != NodeGate::kOpen || ledger.everything > 0;
  if (!nothing) {
    snapshot.available = LeftOf(snapshot.total, ledger.resources);
  }
  if (snapshot.gate == NodeGate::kOpen) {
    // Beside one that holds everything nothing else has room.
    const ResourceSet all =
        ledger.everything > 0 ? ResourceSet() : snapshot.total;
    snapshot.overdrawn = all.Shortfall(ledger.resources);
  }
  const Amount whole = Amount::FromUnits(1);
  ResourceSet fenced;
  for (const Device& device : record.node.devices()) {
    if (!IsGpu(device)) continue;
    const auto taken = ledger.devices.find(device.id());
    Amount free = taken == ledger.devices.end() ? whole
                  : taken->second < whole       ? whole - taken->second
                                                : Amount();
    if (nothing) free = Amount();
    DeviceShare& share = snapshot.devices.emplace_back();
    share = {.id = device.id(), .free = free};
    share.suspect = device.state() == v1::DEVICE_STATE_SUSPECT;
    if (device.state() != v1::DEVICE_STATE_FENCED) continue;
    std::swap(share.free, share.fenced);
    fenced.Set(kGpu, fenced.Get(kGpu) + share.fenced);
  }
  snapshot.available = LeftOf(std::move(snapshot.available), fenced);
  return snapshot;
}

void NodeTable::Refresh(const NodeId& node) {
  ++version_;
  restated_.insert(node);
  stale_.insert(node);
}

const PlacementIndex& NodeTable::index() const {
  for (const NodeId& node : std::exchange(stale_, {})) {
    const NodeRecord* const record = Find(node);
    if (record == nullptr || record->state == v1::NODE_STATE_DEAD) {
      index_.Remove(node);
      continue;
    }
    const Ledger& ledger = ledgers_.at(node);
    index_.Put(SnapshotOf(*record, ledger, GateOf(*record, ledger.offered)));
  }
  return index_;
}

Gains NodeTable::TakeGains() {
  index();
  return index_.TakeGains();
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
  const NodeSnapshot* snapshot = index().Find(node);
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
  for (const auto& [id, record] : records_) count += record.node.has_drain();
  return count;
}

NodeState NodeTable::ShownState(const NodeId& node) const {
  const NodeState state = ShownStateOf(records_.at(node), IsEmpty(node));
  const bool absent = state == v1::NODE_STATE_ALIVE && !IsOffered(node);
  return absent ? v1::NODE_STATE_ABSENT : state;
}

absl::Time NodeTable::ShownSince(const NodeId& node) const {
  if (ShownState(node) == v1::NODE_STATE_ABSENT) return AwaySince(node);
  const v1::Node& row = records_.at(node).node;
  return row.has_since() ? rpc::FromWire(row.since()) : absl::InfinitePast();
}

ResourceSet NodeTable::Total() const {
  ResourceSet total;
  for (const auto& [form, bucket] : index().all().buckets()) {
    total.Add(form->total.Times(static_cast<int64_t>(bucket.nodes.size())));
  }
  return total;
}

std::map<std::string, int64_t> NodeTable::CountsByState() const {
  std::map<std::string, int64_t> counts;
  const auto& states = *v1::NodeState_descriptor();
  for (int i = 1; i < states.value_count(); ++i) {
    counts[EnumText(*states.value(i))] = 0;
  }
  for (const auto& [id, node] : records_) ++counts[EnumText(ShownState(id))];
  return counts;
}

ResourceSet NodeTable::Available() const {
  ResourceSet available;
  for (const auto& [form, bucket] : index().all().buckets()) {
    available.Add(
        form->available.Times(static_cast<int64_t>(bucket.nodes.size())));
  }
  return available;
}

}  // namespace cohort::head
