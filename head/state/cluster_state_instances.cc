// What providers launch: ClusterState's part about instances, the cluster file
// and wanted capacity (docs/design/0016-autoscaling.md).

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/log.h"
#include "common/node_labels.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "head/state/cluster_state.h"
#include "head/state/job_warnings.h"
#include "rpc/enum_text.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

constexpr size_t kCapacityMax = 1'000;

std::string NameOf(const InstanceRecord& instance) {
  return absl::StrCat(
      instance.node_type(), " instance ",
      IdOf<InstanceId>(instance.instance_id()).ToHex().substr(0, 8));
}

}  // namespace

void ClusterState::ApplyClusterFile(const std::string& principal,
                                    ClusterFile file, Transition& transition) {
  Change change;
  change.principal = principal;
  AddEvent(EventOf("cluster_file_applied",
                   absl::StrCat(file.node_types_size(), " node types, at most ",
                                file.max_nodes(), " nodes, provider ",
                                file.provider())),
           change);
  change.Put(file);
  fleet_.SetFile(std::move(file));
  Finish(change, transition);
}

absl::Status ClusterState::RequestCapacity(CapacityRecord capacity,
                                           absl::Duration ttl,
                                           Transition& transition) {
  if (!fleet_.capacity().contains({capacity.owner(), capacity.name()}) &&
      fleet_.capacity().size() >= kCapacityMax) {
    return SetReason(
        absl::ResourceExhaustedError(absl::StrCat(
            kCapacityMax,
            " requests for capacity are here already (withdraw some)")),
        "too_many_requests");
  }
  Change change;
  change.principal = capacity.owner();
  if (ttl != absl::InfiniteDuration()) {
    capacity.set_expires_at_us(ToMicros(clock_.Wall() + ttl));
  }
  change.cause = AddEvent(
      EventOf(
          "capacity_requested",
          absl::StrCat(change.principal, " wants ", capacity.name(),
                       ttl == absl::InfiniteDuration()
                           ? ""
                           : absl::StrCat(" for ", absl::FormatDuration(ttl)))),
      change);
  capacity.mutable_origin()->set_cause(change.cause);
  change.Put(capacity);
  fleet_.PutCapacity(std::move(capacity));
  Finish(change, transition);
  return absl::OkStatus();
}

absl::Status ClusterState::WithdrawCapacity(const std::string& principal,
                                            const CapacityKey& key,
                                            Transition& transition) {
  if (!fleet_.capacity().contains(key)) {
    return SetReason(
        absl::NotFoundError(absl::StrCat(
            key.first, " has no request for capacity \"", key.second,
            "\": `cohort autoscaler requests` shows those that are")),
        "unknown_request");
  }
  Change change;
  change.principal = principal;
  DropCapacity(key, "capacity_withdrawn",
               absl::StrCat(principal, " withdrew ", TextOf(key)), change);
  Finish(change, transition);
  return absl::OkStatus();
}

void ClusterState::DropCapacity(const CapacityKey& key, const char* kind,
                                std::string text, Change& change) {
  AddEvent(EventOf(kind, std::move(text)), change);
  change.Delete<CapacityRecord>(key.first, key.second);
  fleet_.RemoveCapacity(key);
}

void ClusterState::ExpireCapacity(Change& change) {
  const int64_t now = ToMicros(clock_.Wall());
  std::vector<CapacityKey> expired;
  for (const auto& [key, each] : fleet_.capacity()) {
    if (each.expires_at_us() != 0 && each.expires_at_us() <= now) {
      expired.push_back(key);
    }
  }
  for (const CapacityKey& key : expired) {
    DropCapacity(key, "capacity_expired",
                 absl::StrCat(TextOf(key), " has expired"), change);
  }
}

void ClusterState::AddInstance(const std::string& type, const JobId& job,
                               const std::string& why, Transition& transition) {
  Change change;
  InstanceRecord instance;
  instance.set_instance_id(IdBytes(InstanceId::New(random_)));
  instance.set_node_type(type);
  instance.set_state(v1::INSTANCE_STATE_QUEUED);
  instance.set_created_at_us(ToMicros(clock_.Wall()));
  instance.set_since_us(instance.created_at_us());
  instance.set_job_id(IdBytes(job));
  AddEvent(EventOf("instance_queued",
                   absl::StrCat(NameOf(instance), " is to be launched: ", why),
                   {.job = job}),
           change);
  PutInstance(std::move(instance), change);
  Finish(change, transition);
}

void ClusterState::PutInstance(InstanceRecord instance, Change& change) {
  change.Put(instance);
  fleet_.Put(std::move(instance));
}

void ClusterState::MoveInstance(const InstanceId& id, v1::InstanceState to,
                                const std::string& detail,
                                Transition& transition) {
  const InstanceRecord* const found = fleet_.Find(id);
  if (found == nullptr || found->state() == to) return;
  InstanceRecord instance = *found;
  Change change;
  if (to == v1::INSTANCE_STATE_REQUESTED) {
    AddLaunchToken(id, change);
  } else if (to == v1::INSTANCE_STATE_ALLOCATED) {
    instance.set_provider_id(detail);
    instance.set_allocated_at_us(ToMicros(clock_.Wall()));
  } else if (to == v1::INSTANCE_STATE_TERMINATING && !detail.empty()) {
    instance.set_reason(detail);
  }
  SetState(instance, to, detail, change);
  PutInstance(std::move(instance), change);
  Finish(change, transition);
}

void ClusterState::SetState(InstanceRecord& instance, v1::InstanceState to,
                            const std::string& detail, Change& change) {
  instance.set_state(to);
  instance.set_since_us(ToMicros(clock_.Wall()));
  const std::string state = LowerEnumText(to);
  COHORT_LOG(kInfo, absl::StrCat("instance_", state),
             {"instance", IdOf<InstanceId>(instance.instance_id())},
             {"node_type", instance.node_type()}, {"detail", detail});
  AddEvent(
      EventOf(absl::StrCat("instance_", state).c_str(),
              absl::StrCat(NameOf(instance), " is ", state,
                           detail.empty() ? "" : ": ", detail),
              {.job = JobId::FromBytes(instance.job_id()).value_or(JobId()),
               .node = IdOf<NodeId>(instance.node_id())}),
      change);
}

void ClusterState::SetProviderId(const InstanceId& id,
                                 const std::string& provider_id,
                                 Transition& transition) {
  const InstanceRecord* const found = fleet_.Find(id);
  if (found == nullptr) return;
  InstanceRecord instance = *found;
  instance.set_provider_id(provider_id);
  instance.set_allocated_at_us(ToMicros(clock_.Wall()));
  Change change;
  PutInstance(std::move(instance), change);
  Finish(change, transition);
}

void ClusterState::SetInstanceReason(const InstanceId& id,
                                     const std::string& reason,
                                     Transition& transition) {
  const InstanceRecord* const found = fleet_.Find(id);
  if (found == nullptr) return;
  InstanceRecord instance = *found;
  instance.set_reason(reason);
  Change change;
  PutInstance(std::move(instance), change);
  Finish(change, transition);
}

bool ClusterState::AdoptInstance(const InstanceId& id,
                                 const std::string& provider_id,
                                 Transition& transition) {
  for (const auto& [node, record] : nodes_.records()) {
    const auto& labels = record.node.labels();
    const auto label = labels.find(kInstanceLabel);
    if (record.state == v1::NODE_STATE_DEAD || label == labels.end() ||
        label->second != id.ToHex()) {
      continue;
    }
    InstanceRecord instance;
    instance.set_instance_id(IdBytes(id));
    const auto type = labels.find(kNodeTypeLabel);
    if (type != labels.end()) instance.set_node_type(type->second);
    instance.set_provider_id(provider_id);
    instance.set_node_id(IdBytes(node));
    instance.set_created_at_us(ToMicros(clock_.Wall()));
    instance.set_allocated_at_us(instance.created_at_us());
    Change change;
    SetState(instance, v1::INSTANCE_STATE_JOINED, "no row knew it any more",
             change);
    PutInstance(std::move(instance), change);
    Finish(change, transition);
    return true;
  }
  return false;
}

void ClusterState::DrainInstance(const InstanceId& id, const std::string& why,
                                 absl::Duration deadline,
                                 Transition& transition) {
  const InstanceRecord* const found = fleet_.Find(id);
  if (found == nullptr || found->state() != v1::INSTANCE_STATE_JOINED) return;
  Change change;
  change.principal = "autoscaler";
  DrainInstance(*found, why, deadline, change);
  PlaceWaiting(change);
  Finish(change, transition);
}

void ClusterState::DrainInstance(InstanceRecord instance,
                                 const std::string& why,
                                 absl::Duration deadline, Change& change) {
  const auto node = IdOf<NodeId>(instance.node_id());
  instance.set_reason(why);
  SetState(instance, v1::INSTANCE_STATE_DRAINING, why, change);
  PutInstance(std::move(instance), change);
  const NodeRecord* const record = nodes_.Find(node);
  if (record == nullptr || record->state == v1::NODE_STATE_DEAD) return;
  change.principal = "autoscaler";
  const auto drained =
      DrainNode(node.ToHex(), {.reason = why, .deadline = deadline}, change);
  if (!drained.ok()) {
    COHORT_LOG(kWarning, "instance_not_drained", {"node", node},
               {"why", drained.status()});
  }
}

void ClusterState::NoteLostResults(const JobId& job, const NodeId& node,
                                   bool known, Transition& transition) {
  JobRecord* const found = jobs_.FindMutable(job);
  const NodeRecord* const record = nodes_.Find(node);
  if (found == nullptr || record == nullptr) return;
  Change change;
  const std::string text =
      absl::StrCat("what it ", known ? "wrote" : "may have written",
                   " on node ", record->node.name(), kLostWithNode,
                   " (name a --storage-path that outlives nodes)");
  if (AddWarning(text, *found)) change.jobs.insert(job);
  AddEvent(EventOf("results_lost", text, {.job = job, .node = node}), change);
  Finish(change, transition);
}

bool ClusterState::IsGoneForGood(const NodeId& node) const {
  const NodeRecord* const record = nodes_.Find(node);
  if (record == nullptr || nodes_.IsOffered(node) ||
      !record->node.labels().contains(kInstanceLabel)) {
    return false;
  }
  const InstanceRecord* const instance = fleet_.OfNode(node);
  return instance == nullptr ||
         instance->state() == v1::INSTANCE_STATE_TERMINATING;
}

void ClusterState::NoteNotEnded(const InstanceId& id, int tries,
                                const std::string& why,
                                Transition& transition) {
  const InstanceRecord* const found = fleet_.Find(id);
  if (found == nullptr) return;
  Change change;
  AddEvent(
      EventOf("instance_not_ended",
              absl::StrCat("the provider did not end ", NameOf(*found),
                           ", asked ", tries, tries == 1 ? " time" : " times",
                           " (it is asked again): ", why),
              {.job = JobId::FromBytes(found->job_id()).value_or(JobId()),
               .node = IdOf<NodeId>(found->node_id())}),
      change);
  Finish(change, transition);
}

void ClusterState::NoteScaling(const char* kind, std::string text,
                               Transition& transition) {
  Change change;
  AddEvent(EventOf(kind, std::move(text)), change);
  Finish(change, transition);
}

void ClusterState::EndInstance(const InstanceId& id, const std::string& why,
                               Transition& transition) {
  const InstanceRecord* const found = fleet_.Find(id);
  if (found == nullptr) return;
  Change change;
  AddEvent(EventOf("instance_ended",
                   absl::StrCat(NameOf(*found), " has ended: ", why),
                   {.job = JobId::FromBytes(found->job_id()).value_or(JobId()),
                    .node = IdOf<NodeId>(found->node_id())}),
           change);
  // Its node is no more: nobody has to undrain it.
  const auto node = IdOf<NodeId>(found->node_id());
  const NodeRecord* const record = nodes_.Find(node);
  if (record != nullptr) {
    WithdrawNode(node, record->node.incarnation());
    if (record->node.has_drain()) {
      nodes_.SetDrain(node, std::nullopt);
      deadlines_.Erase({DueKind::kDrain, node});
      change.nodes.insert(node);
    }
  }
  // Neither it nor its node is let in again.
  const absl::Time now = clock_.Wall();
  if (const TokenRecord* const launch = LaunchToken(LaunchTokenId(id))) {
    DropToken(tokens_.FindNode(launch->node_id(), now), change);
    DropToken(launch, change);
  }
  DropToken(tokens_.FindNode(found->node_id(), now), change);
  change.Delete<InstanceRecord>(found->instance_id());
  fleet_.Remove(id);
  Finish(change, transition);
}

void ClusterState::JoinInstance(const NodeId& node, Change& change) {
  const NodeRecord& record = *nodes_.Find(node);
  const auto label = record.node.labels().find(kInstanceLabel);
  if (label == record.node.labels().end()) return;
  const absl::StatusOr<InstanceId> id = InstanceId::FromHex(label->second);
  const InstanceRecord* const found = id.ok() ? fleet_.Find(*id) : nullptr;
  if (found == nullptr || found->state() == v1::INSTANCE_STATE_DRAINING) return;
  if (found->node_id() == IdBytes(node)) {
    if (found->state() != v1::INSTANCE_STATE_TERMINATING) return;
  } else if (!CameAs(node, *id)) {
    COHORT_LOG(kWarning, "instance_label_refused", {"node", node},
               {"instance", *id}, {"why", "it joined by another token"});
    return;
  }
  if (found->state() == v1::INSTANCE_STATE_TERMINATING &&
      !found->provider_id().empty()) {
    // Its provider may be ending it already: what began there would end with
    // it.  (Of one whose provider has not said what it is nobody is asked.)
    InstanceRecord ending = *found;
    ending.set_node_id(IdBytes(node));
    const std::string why = ending.reason();
    DrainInstance(std::move(ending), why, absl::InfiniteDuration(), change);
    change.principal.clear();
    return;
  }
  if (found->node_id() == IdBytes(node)) return;
  if (!found->node_id().empty()) {
    const NodeRecord* const other = nodes_.Find(IdOf<NodeId>(found->node_id()));
    if (other != nullptr && other->state != v1::NODE_STATE_DEAD) return;
  }
  InstanceRecord instance = *found;
  instance.set_node_id(IdBytes(node));
  instance.clear_reason();  // why it did not run yet
  SetState(instance, v1::INSTANCE_STATE_JOINED,
           absl::StrCat("node ", record.node.name()), change);
  const v1::NodeType* const type = fleet_.FindType(instance.node_type());
  const auto promised =
      rpc::FromWire(type == nullptr ? v1::ResourceSet() : type->resources());
  if (promised.ok() && !nodes_.ResourcesOf(node).Fits(*promised)) {
    instance.set_failed(true);
    DrainInstance(
        std::move(instance),
        absl::StrCat("it lacks ",
                     nodes_.ResourcesOf(node).Shortfall(*promised).ToString(),
                     " of what its node type promises"),
        absl::InfiniteDuration(), change);
    change.principal.clear();
    return;
  }
  DropToken(tokens_.Find(LaunchTokenId(*id)), change);
  PutInstance(std::move(instance), change);
}

}  // namespace cohort::head
