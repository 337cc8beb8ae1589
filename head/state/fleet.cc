#include "head/state/fleet.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

namespace cohort::head {

std::string TextOf(const CapacityKey& key) {
  return absl::StrCat(key.second, " of ", key.first);
}

void Fleet::SetFile(ClusterFile file) {
  file_ = std::move(file);
  ++version_;
  ++wants_version_;
}

const v1::NodeType* Fleet::FindType(const std::string& name) const {
  if (!file_.has_value()) return nullptr;
  for (const v1::NodeType& type : file_->node_types()) {
    if (type.name() == name) return &type;
  }
  return nullptr;
}

void Fleet::Put(InstanceRecord instance) {
  const auto id = IdOf<InstanceId>(instance.instance_id());
  Remove(id);
  if (!instance.node_id().empty()) {
    nodes_[IdOf<NodeId>(instance.node_id())] = id;
  }
  instances_[id] = std::move(instance);
  ++version_;
}

void Fleet::Remove(const InstanceId& id) {
  const auto found = instances_.find(id);
  if (found == instances_.end()) return;
  nodes_.erase(IdOf<NodeId>(found->second.node_id()));
  instances_.erase(found);
  ++version_;
}

const InstanceRecord* Fleet::Find(const InstanceId& id) const {
  const auto found = instances_.find(id);
  return found == instances_.end() ? nullptr : &found->second;
}

const InstanceRecord* Fleet::OfNode(const NodeId& node) const {
  const auto found = nodes_.find(node);
  return found == nodes_.end() ? nullptr : Find(found->second);
}

bool Fleet::IsAnothers(const std::string& provider_id,
                       const InstanceId& id) const {
  return absl::c_any_of(instances_, [&](const auto& each) {
    return each.first != id && each.second.provider_id() == provider_id;
  });
}

void Fleet::PutCapacity(CapacityRecord capacity) {
  const CapacityKey key(capacity.owner(), capacity.name());
  capacity_[key] = std::move(capacity);
  ++version_;
  ++wants_version_;
}

void Fleet::RemoveCapacity(const CapacityKey& key) {
  capacity_.erase(key);
  ++version_;
  ++wants_version_;
}

}  // namespace cohort::head
