// ClusterState's word on nodes: their registration, silence, drains, and what
// is left on a node that has lost its leases.

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/log.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "head/state/cluster_state.h"
#include "head/state/job_spec.h"
#include "head/state/node_finder.h"
#include "head/state/reconciler.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

// Of a returned node's attempts, in the text of one event.
constexpr size_t kAttemptsNamed = 8;
// Of one kind, so that no decision is about too many.
constexpr size_t kNodesPerTick = 250;

// Why an attempt has lost its lease on a node that still has it.
std::string WhyLeaseIsLost(const AttemptRecord* attempt, const NodeId& node) {
  if (attempt == nullptr) return "the head knows no such attempt";
  const Place* const place = PlaceOn(*attempt, node);
  if (place == nullptr) return "it was never placed there";
  if (IsOver(*place)) return EndReasonOf(*attempt);
  return "its slot was filled again";
}

std::string ForReason(const std::string& reason) {
  return reason.empty() ? "" : absl::StrCat(": ", reason);
}

std::string WhyEvicted(const NodeRecord& drained) {
  return absl::StrCat("node ", drained.node.name(),
                      " is drained and its deadline passed",
                      ForReason(drained.node.drain().reason()));
}

// How its devices were, so that only what changed is told (DV-6).
void KeepDeviceStates(const NodeRecord* known, NodeRecord& record) {
  for (Device& device : *record.node.mutable_devices()) {
    const Device* const as_it_was =
        known == nullptr ? nullptr : FindDevice(*known, device.id());
    device.set_state(as_it_was == nullptr ? v1::DEVICE_STATE_HEALTHY
                                          : as_it_was->state());
    device.set_reason(as_it_was == nullptr ? "" : as_it_was->reason());
    *device.mutable_since() =
        as_it_was == nullptr ? record.node.since() : as_it_was->since();
    device.clear_sample();
    device.clear_holders();
  }
}

// Those that the node does not name are healthy.
std::vector<v1::DeviceStatus> WithHealthy(const Registration& registration) {
  std::vector<v1::DeviceStatus> all = registration.devices;
  for (const Device& device : registration.node.devices()) {
    const bool named =
        std::any_of(all.begin(), all.end(),
                    [&](const auto& each) { return each.id() == device.id(); });
    if (named) continue;
    all.emplace_back().set_id(device.id());
    all.back().set_state(v1::DEVICE_STATE_HEALTHY);
  }
  return all;
}

}  // namespace

// ---- registration ----

absl::StatusOr<RegisteredNode> ClusterState::RegisterNode(
    const Registration& registration, Transition& transition) {
  COHORT_RETURN_IF_ERROR(CheckRegistration(registration));
  const NodeId& node = registration.id;
  const NodeRecord* known = nodes_.Find(node);
  const bool returns = known != nullptr && known->state == v1::NODE_STATE_DEAD;
  Change change;
  change.registering = node;
  EnterNode(registration, change);
  JoinInstance(node, change);
  ApplyReadiness(node, registration.node.not_ready(), change);
  ApplyDevices(node, WithHealthy(registration), change);
  nodes_.SetSamples(node, registration.devices);
  for (const v1::ObservedPlace& place : registration.observed.places()) {
    ApplyObserved(node, place, change);
  }
  ApplyAbsence(node, registration.observed, change);
  if (returns) NoteReturn(node, change);
  if (!registration.leaving) nodes_.Offer(node);
  // What it says may be their end, and what follows belongs to the answer.
  EndUnownedDrivers(change);
  PlaceWaiting(change);
  RegisteredNode registered = AnswerTo(node, change);
  Finish(change, transition);
  return registered;
}

absl::Status ClusterState::CheckRegistration(
    const Registration& registration) const {
  COHORT_RETURN_IF_ERROR(ValidateRegistration(registration));
  const NodeId& node = registration.id;
  COHORT_RETURN_IF_ERROR(CheckOrphans(node, registration.observed));
  COHORT_RETURN_IF_ERROR(nodes_.CheckGpus(node, registration.node));
  const NodeRecord* known = nodes_.Find(node);
  const bool is_one_more =
      known == nullptr || known->state == v1::NODE_STATE_DEAD;
  const int64_t count = nodes_.CountOf(v1::NODE_STATE_ALIVE) +
                        nodes_.CountOf(v1::NODE_STATE_SUSPECT);
  if (is_one_more && count >= static_cast<int64_t>(limits_.nodes_max)) {
    return SetReason(
        absl::ResourceExhaustedError(absl::StrCat(
            "the cluster has ", limits_.nodes_max, " nodes already")),
        "too_many_nodes");
  }
  return absl::OkStatus();
}

void ClusterState::EnterNode(const Registration& registration, Change& change) {
  const NodeId& node = registration.id;
  NodeRecord record{.id = node, .node = registration.node};
  record.node.set_incarnation(cluster_.next_incarnation());
  cluster_.set_next_incarnation(record.node.incarnation() + 1);
  record.node.clear_not_ready();
  *record.node.mutable_since() = rpc::ToWire(clock_.Wall());
  change.principal = absl::StrCat("node/", record.node.name());
  change.cause = AddNodeEvent(node, "node_registered",
                              absl::StrCat(record.node.name(), ", incarnation ",
                                           record.node.incarnation()),
                              change);
  change.principal.clear();  // what follows is the head's
  record.cause = change.cause;
  const NodeRecord* known = nodes_.Find(node);
  // What a person asked of the node outlives its daemon, and what it said of
  // itself goes on until it says otherwise.
  if (known != nullptr) {
    *record.node.mutable_since() = known->node.since();
    record.node.set_not_ready(known->node.not_ready());
    if (known->node.has_drain()) {
      *record.node.mutable_drain() = known->node.drain();
      record.cause = known->cause;
    }
  }
  KeepDeviceStates(known, record);
  nodes_.Put(std::move(record));
  change.nodes.insert(node);
  GrantLease(node);
  Spare(node);  // what was not lost by then goes on there
  later_store_.Forget(node);
}

RegisteredNode ClusterState::AnswerTo(const NodeId& node, Change& change) {
  for (const AttemptId& id : attempts_.OnNode(node)) {
    change.desired[node].try_emplace(id);
  }
  RegisteredNode registered{
      .incarnation = nodes_.Find(node)->node.incarnation(),
      .desired = DesiredOf(node, change, view()),
      .exchanges = {},
      .acknowledged = {}};
  for (const v1::DesiredPlace& each : registered.desired) {
    if (each.goal() != v1::GOAL_PREPARE) continue;
    const std::vector<SharedExchange> complete =
        exchanges_.CompleteOf(*AttemptId::FromBytes(each.attempt_id()));
    registered.exchanges.insert(registered.exchanges.end(), complete.begin(),
                                complete.end());
  }
  registered.acknowledged = std::move(change.acknowledged[node]);
  change.acknowledged.erase(node);
  return registered;
}

// ---- silence ----

void ClusterState::TickNodes(Change& change) {
  for (const Due& due : deadlines_.TakeDue(DueKind::kSuspect, kNodesPerTick)) {
    Suspect(due.node(), change);
  }
  for (const Due& due : deadlines_.TakeDue(DueKind::kDead, kNodesPerTick)) {
    const NodeId& node = due.node();
    // It is not silent, it only does not follow this head: nothing that it has
    // is lost, and is an orphan after a restore of this store.
    if (later_store_.Follows(node, clock_.Monotonic())) {
      GrantLease(node);
    } else {
      NodeSilent(node, change);
    }
  }
  for (const Due& due : deadlines_.TakeDue(DueKind::kDrain, kNodesPerTick)) {
    EvictFrom(due.node(), change);
  }
  change.cause = 0;  // each of these had its own
}

void ClusterState::GrantLease(const NodeId& node) {
  deadlines_.Set({DueKind::kSuspect, node}, limits_.node_timeout / 2);
  deadlines_.Set({DueKind::kDead, node}, limits_.node_timeout);
}

void ClusterState::Suspect(const NodeId& node, Change& change) {
  const NodeRecord& record = *nodes_.Find(node);
  // So it was when the head before this one ended.
  if (record.state == v1::NODE_STATE_SUSPECT) return;
  const std::string why =
      absl::StrCat("node ", record.node.name(), " was silent for ",
                   absl::FormatDuration(limits_.node_timeout / 2));
  COHORT_LOG(kWarning, "node_suspect", {"node", node},
             {"name", record.node.name()},
             {"silent", limits_.node_timeout / 2});
  AddNodeEvent(node, "node_suspect", why, change);
  nodes_.MarkSuspect(node);
  change.nodes.insert(node);
}

void ClusterState::HearAgain(const NodeId& node, Change& change) {
  GrantLease(node);
  const NodeRecord& record = *nodes_.Find(node);
  if (record.state != v1::NODE_STATE_SUSPECT) return;
  COHORT_LOG(kInfo, "node_alive", {"node", node}, {"name", record.node.name()});
  AddNodeEvent(node, "node_alive",
               absl::StrCat("node ", record.node.name(), " is heard again"),
               change);
  nodes_.MarkAlive(node);
  change.nodes.insert(node);
}

void ClusterState::RenewLease(const NodeId& node, uint64_t incarnation,
                              Transition& transition) {
  const NodeRecord* record = nodes_.Find(node);
  if (record == nullptr || record->node.incarnation() != incarnation ||
      record->state == v1::NODE_STATE_DEAD) {
    return;
  }
  if (record->state == v1::NODE_STATE_ALIVE) return GrantLease(node);
  Change change;
  HearAgain(node, change);
  PlaceWaiting(change);
  Finish(change, transition);
}

// ---- what it says of itself ----

void ClusterState::NoteReadiness(const NodeId& node, uint64_t incarnation,
                                 const std::string& not_ready,
                                 Transition& transition) {
  const NodeRecord* record = nodes_.Find(node);
  if (record == nullptr || record->node.incarnation() != incarnation ||
      record->state == v1::NODE_STATE_DEAD ||
      nodes_.NotReadyBecause(node) == not_ready) {
    return;
  }
  Change change;
  ApplyReadiness(node, not_ready, change);
  PlaceWaiting(change);
  Finish(change, transition);
}

void ClusterState::ApplyReadiness(const NodeId& node,
                                  const std::string& not_ready,
                                  Change& change) {
  const std::string before = nodes_.NotReadyBecause(node);
  if (before == not_ready) return;
  nodes_.SetNotReady(node, not_ready);
  change.nodes.insert(node);
  // In other words it is still the same to people.
  if (!before.empty() && !not_ready.empty()) return;
  const std::string& name = nodes_.Find(node)->node.name();
  if (not_ready.empty()) {
    COHORT_LOG(kInfo, "node_ready", {"node", node}, {"name", name});
    change.freed_by =
        AddNodeEvent(node, "node_ready",
                     absl::StrCat("node ", name, " takes work again"), change);
  } else {
    COHORT_LOG(kWarning, "node_not_ready", {"node", node}, {"name", name},
               {"why", not_ready});
    AddNodeEvent(node, "node_not_ready",
                 absl::StrCat("node ", name, " takes no new work: ", not_ready),
                 change);
  }
}

// ---- its devices ----

void ClusterState::NoteDevices(const NodeId& node, uint64_t incarnation,
                               std::vector<v1::DeviceStatus> devices,
                               Transition& transition) {
  const NodeRecord* record = nodes_.Find(node);
  if (record == nullptr || record->node.incarnation() != incarnation ||
      record->state == v1::NODE_STATE_DEAD) {
    return;
  }
  Change change;
  const bool changed = ApplyDevices(node, devices, change);
  nodes_.SetSamples(node, std::move(devices));
  if (!changed) return;
  PlaceWaiting(change);
  Finish(change, transition);
}

bool ClusterState::ApplyDevices(const NodeId& node,
                                const std::vector<v1::DeviceStatus>& devices,
                                Change& change) {
  bool changed = false;
  for (const v1::DeviceStatus& observed : devices) {
    const NodeRecord& record = *nodes_.Find(node);
    const Device* const known = FindDevice(record, observed.id());
    if (known == nullptr) continue;
    const DeviceState before = known->state();
    if (before == observed.state() && known->reason() == observed.reason()) {
      continue;
    }
    changed = true;
    change.nodes.insert(node);
    nodes_.SetDeviceState(node, observed, clock_.Wall());
    // In other words it is still the same to people.
    if (before == observed.state()) continue;
    const bool fenced = observed.state() == v1::DEVICE_STATE_FENCED;
    const bool healthy = observed.state() == v1::DEVICE_STATE_HEALTHY;
    const char* const kind = fenced    ? "device_fenced"
                             : healthy ? "device_healthy"
                                       : "device_suspect";
    COHORT_LOG(kWarning, kind, {"node", node}, {"name", record.node.name()},
               {"device", observed.id()}, {"why", observed.reason()});
    const uint64_t event = AddNodeEvent(
        node, kind,
        healthy
            ? absl::StrCat("GPU ", observed.id(), " of node ",
                           record.node.name(), " is healthy again")
            : absl::StrCat("node ", record.node.name(), ": ", observed.reason(),
                           fenced ? "; it is given to no one"
                                  : "; it is given out last"),
        change, nodes_.DeviceEvent(node, observed.id()));
    nodes_.SetDeviceEvent(node, observed.id(), event);
    if (before == v1::DEVICE_STATE_FENCED) change.freed_by = event;
  }
  return changed;
}

uint64_t ClusterState::FaultOf(const AttemptRecord& attempt,
                               const NodeId& node) const {
  uint64_t last = 0;
  for (const Process& process : attempt.processes) {
    if (process.node != node) continue;
    for (const auto& [id, amount] : process.devices) {
      const Device* const device = FindDevice(*nodes_.Find(node), id);
      if (device == nullptr || device->state() != v1::DEVICE_STATE_FENCED) {
        continue;
      }
      last = std::max(last, nodes_.DeviceEvent(node, id));
    }
  }
  return last;
}

// ---- drains ----

absl::StatusOr<NodeId> ClusterState::DrainNode(const RequestKey& request,
                                               const std::string& text,
                                               const DrainOrder& order,
                                               Transition& transition) {
  return Mutate<NodeId>(request, transition, [&](Change& change) {
    return DrainNode(text, order, change);
  });
}

absl::StatusOr<NodeId> ClusterState::DrainNode(const std::string& text,
                                               const DrainOrder& order,
                                               Change& change) {
  COHORT_RETURN_IF_ERROR(ValidateDrainOrder(order));
  COHORT_ASSIGN_OR_RETURN(const NodeId node, FindNode(nodes_, text));
  const bool is_drained = nodes_.Find(node)->node.has_drain();
  if (!is_drained && nodes_.DrainedCount() >= limits_.drains_max) {
    return SetReason(absl::ResourceExhaustedError(absl::StrCat(
                         nodes_.DrainedCount(),
                         " nodes are drained already: undrain some that will "
                         "not come back")),
                     "too_many_drains");
  }
  const absl::Time now = clock_.Wall();
  const bool has_deadline = order.deadline != absl::InfiniteDuration();
  Drain drain;
  drain.set_reason(order.reason);
  drain.set_principal(change.principal);
  *drain.mutable_asked_at() = rpc::ToWire(now);
  if (has_deadline) {
    *drain.mutable_deadline() = rpc::ToWire(now + order.deadline);
  }
  nodes_.SetDrain(node, drain);
  deadlines_.Set({DueKind::kDrain, node}, order.deadline);
  Spare(node);
  change.nodes.insert(node);
  change.cause = AddNodeEvent(
      node, "node_drained",
      absl::StrCat(change.principal, " drained node ",
                   nodes_.Find(node)->node.name(), ForReason(order.reason),
                   has_deadline
                       ? absl::StrCat("; what runs there is moved in ",
                                      absl::FormatDuration(order.deadline))
                       : ""),
      change);
  nodes_.SetCause(node, change.cause);
  for (const AttemptId& id : attempts_.OnNode(node)) {
    change.desired[node].try_emplace(id);  // with the notice
  }
  if (!is_drained) NoteLeft(node, change);
  return node;
}

absl::StatusOr<NodeId> ClusterState::UndrainNode(const RequestKey& request,
                                                 const std::string& text,
                                                 Transition& transition) {
  return Mutate<NodeId>(request, transition, [&](Change& change) {
    return UndrainNode(text, change);
  });
}

absl::StatusOr<NodeId> ClusterState::UndrainNode(const std::string& text,
                                                 Change& change) {
  COHORT_ASSIGN_OR_RETURN(const NodeId node, FindNode(nodes_, text));
  const InstanceRecord* const instance = fleet_.OfNode(node);
  if (instance != nullptr &&
      instance->state() == v1::INSTANCE_STATE_TERMINATING) {
    return SetReason(
        absl::FailedPreconditionError(absl::StrCat(
            "node ", nodes_.Find(node)->node.name(),
            " is being ended by its provider: ", instance->reason(),
            " (`cohort autoscaler status` says how far it is)")),
        "node_is_ended");
  }
  if (nodes_.Find(node)->node.has_drain()) {
    nodes_.SetDrain(node, std::nullopt);
    deadlines_.Erase({DueKind::kDrain, node});
    Spare(node);
    change.nodes.insert(node);
    // Who is placed there now is so because of it.
    change.freed_by =
        AddNodeEvent(node, "node_undrained",
                     absl::StrCat(change.principal, " undrained node ",
                                  nodes_.Find(node)->node.name()),
                     change);
  }
  return node;
}

bool ClusterState::HasDeadlinePassed(const NodeId& node) const {
  const NodeRecord* record = nodes_.Find(node);
  return record != nullptr && record->node.drain().has_deadline() &&
         !HasDeadlineAhead(node);
}

void ClusterState::EvictFrom(const NodeId& node, Change& change) {
  const NodeRecord& record = *nodes_.Find(node);
  // Its own is what a person asked for, not what else this decision saw.
  change.cause = record.cause;
  change.cause =
      AddNodeEvent(node, "node_deadline_passed", WhyEvicted(record), change);
  Empty(node, change.cause, change);
}

void ClusterState::Evict(const AttemptId& id, const NodeId& node,
                         Change& change) {
  AttemptRecord& attempt = *attempts_.FindMutable(id);
  if (attempt.orphaned() || IsOver(*PlaceOn(attempt, node)) ||
      attempt.state == v1::ATTEMPT_STATE_ENDING ||
      attempt.state == v1::ATTEMPT_STATE_ENDED) {
    return;
  }
  JobRecord& job = *jobs_.FindMutable(attempt.job);
  const std::string why = WhyEvicted(*nodes_.Find(node));
  ApplyOutcome(job, attempt, controller_.Evict(job, attempt, node, why),
               change);
}

void ClusterState::NoteLeft(const NodeId& node, Change& change) {
  const NodeRecord* record = nodes_.Find(node);
  if (record == nullptr || !record->node.has_drain() ||
      nodes_.ShownState(node) != v1::NODE_STATE_DRAINED) {
    return;
  }
  AddNodeEvent(
      node, "node_empty",
      absl::StrCat("nothing is left on drained node ", record->node.name()),
      change);
}

// ---- lost leases ----

absl::Status ClusterState::CheckOrphans(const NodeId& node,
                                        const v1::Observed& observed) const {
  size_t orphans = nodes_.OrphanCountOn(node);
  if (orphans + static_cast<size_t>(observed.places_size()) <= kOrphansMax) {
    return absl::OkStatus();
  }
  for (const v1::ObservedPlace& each : observed.places()) {
    const AttemptId id = AttemptOf(each);
    const AttemptRecord* attempt = attempts_.Find(id);
    const Place* place = attempt == nullptr ? nullptr : PlaceOn(*attempt, node);
    const bool is_one = place == nullptr || IsOver(*place);
    orphans += is_one && !nodes_.IsOrphanOn(node, id);
  }
  if (orphans <= kOrphansMax) return absl::OkStatus();
  return SetReason(
      absl::ResourceExhaustedError(absl::StrCat(
          "the node has more than ", kOrphansMax,
          " attempts that nobody wants there: end what runs on it, then start "
          "its daemon with a new --state-dir")),
      "too_many_orphans");
}

NodeTable::Held ClusterState::ClaimOf(const NodeId& node,
                                      const v1::ObservedPlace& observed) const {
  NodeTable::Held held{.each = ResourcesPerProcess(observed), .processes = {}};
  if (observed.has_resources_per_process()) return held;
  // Deltas do not say.
  const AttemptId id = AttemptOf(observed);
  if (const AttemptRecord* attempt = attempts_.Find(id)) {
    held.each = ResourcesPerWorker(*jobs_.Find(attempt->job)->spec);
  } else if (const NodeTable::Held* before = nodes_.FindOrphan(node, id)) {
    held.each = before->each;
    held.everything = before->everything;
  } else {
    held.everything = true;
  }
  return held;
}

void ClusterState::ApplyOrphans(const NodeId& node,
                                const v1::ObservedPlace& observed,
                                Change& change) {
  AttemptRecord* const attempt = attempts_.FindMutable(AttemptOf(observed));
  NodeTable::Held held = ClaimOf(node, observed);
  for (const v1::ObservedProcess& each : observed.processes()) {
    const Process* const process =
        attempt == nullptr
            ? nullptr
            : FindProcess(*attempt, each.slot(), each.incarnation());
    const bool has_lease =
        process != nullptr && process->node == node && !process->over();
    // One that was given up may yet begin, before the node hears of it; not
    // where its place failed.
    const bool may_begin = observed.phase() != v1::PHASE_FAILED &&
                           each.state() == v1::PROCESS_STATE_PENDING &&
                           process != nullptr && process->node == node;
    if (has_lease || !(IsLive(each) || may_begin)) continue;
    held.processes.emplace(Incarnation{each.slot(), each.incarnation()},
                           DevicesOf(held.each, each));
  }
  if (held.processes.empty()) {
    RemoveOrphan(node, AttemptOf(observed), change);
  } else {
    AddOrphan(node, observed, std::move(held), change);
  }
}

void ClusterState::AddOrphan(const NodeId& node,
                             const v1::ObservedPlace& observed,
                             NodeTable::Held held, Change& change) {
  const AttemptId id = AttemptOf(observed);
  const AttemptRecord* attempt = attempts_.Find(id);
  const JobId job = attempt == nullptr ? JobOf(observed) : attempt->job;
  if (!nodes_.SetOrphan(node, id, job, std::move(held))) return;
  const std::string why = WhyLeaseIsLost(attempt, node);
  COHORT_LOG(kWarning, "lease_lost", {"node", node}, {"attempt", id},
             {"why", why});
  const std::string text = absl::StrCat(
      "node ", nodes_.Find(node)->node.name(), " still has attempt ",
      id.ToHex(), ", which has lost its lease: ", why, "; it is to end it");
  nodes_.SetOrphanEvent(
      node, id,
      AddEvent(EventOf("lease_lost", text,
                       {.job = attempt == nullptr ? JobId() : attempt->job,
                        .attempt = id,
                        .node = node}),
               change));
  DisplaceFor(node, id, change);
}

void ClusterState::DisplaceFor(const NodeId& node, const AttemptId& orphan,
                               Change& change) {
  std::vector<AttemptId> unbegun;
  for (const AttemptId& id : attempts_.OnNode(node)) {
    const AttemptRecord& attempt = *attempts_.Find(id);
    if (attempt.state == v1::ATTEMPT_STATE_PREPARING && !attempt.orphaned()) {
      unbegun.push_back(id);
    }
  }
  const uint64_t cause_before = change.cause;
  change.cause = nodes_.OrphanEvent(node, orphan);
  for (const AttemptId& id : nodes_.WithoutRoom(node, unbegun)) {
    AttemptRecord& attempt = *attempts_.FindMutable(id);
    JobRecord& job = *jobs_.FindMutable(attempt.job);
    const std::string why =
        absl::StrCat("node ", nodes_.Find(node)->node.name(),
                     " still has attempt ", orphan.ToHex(),
                     " from before the restore, beside which it has no room");
    ApplyOutcome(job, attempt, controller_.Displace(job, attempt, why), change);
  }
  change.cause = cause_before;
}

void ClusterState::RemoveOrphan(const NodeId& node, const AttemptId& orphan,
                                Change& change) {
  const uint64_t told_by = nodes_.OrphanEvent(node, orphan);
  if (nodes_.RemoveOrphan(node, orphan)) {
    const AttemptRecord* attempt = attempts_.Find(orphan);
    change.freed_by =
        AddEvent(EventOf("lease_ended",
                         absl::StrCat("node ", nodes_.Find(node)->node.name(),
                                      " has ended attempt ", orphan.ToHex(),
                                      ", which had no lease there"),
                         {.job = attempt == nullptr ? JobId() : attempt->job,
                          .attempt = orphan,
                          .node = node,
                          .cause = told_by}),
                 change);
    NoteLeft(node, change);
  }
  OnOrphanGone(node, orphan, change);
}

void ClusterState::NoteReturn(const NodeId& node, Change& change) {
  const std::vector<AttemptId> orphans = nodes_.OrphansOn(node);
  std::string text = absl::StrCat("node ", nodes_.Find(node)->node.name(),
                                  " returned after it was declared dead");
  if (orphans.empty()) {
    absl::StrAppend(&text, "; no earlier attempts are running there");
  } else {
    absl::StrAppend(&text, "; its leases are lost, and it still has ",
                    orphans.size(),
                    orphans.size() == 1 ? " attempt" : " attempts");
    for (size_t i = 0; i < orphans.size() && i < kAttemptsNamed; ++i) {
      absl::StrAppend(&text, i == 0 ? ": " : ", ", orphans[i].ToHex());
    }
    if (orphans.size() > kAttemptsNamed) absl::StrAppend(&text, ", ...");
  }
  AddNodeEvent(node, "node_returned", std::move(text), change);
}

// ---- events ----

uint64_t ClusterState::AddNodeEvent(const NodeId& node, const char* kind,
                                    std::string text, Change& change,
                                    uint64_t cause) {
  return AddEvent(
      EventOf(kind, std::move(text), {.node = node, .cause = cause}), change);
}

}  // namespace cohort::head
