#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "common/strong_id.h"
#include "head/store/records.h"

namespace cohort::head {

// A request for capacity: whose, and its name.
using CapacityKey = std::pair<std::string, std::string>;
// "NAME of OWNER".
std::string TextOf(const CapacityKey& key);

// What a provider has launched, is to launch, and may: instances, the cluster
// file, and what capacity people asked for (docs/design/0016-autoscaling.md).
//
//   SC-1: of a node at most one instance is JOINED or later.
//
// Thread-compatible; belongs to ClusterState.
class Fleet {
 public:
  void SetFile(ClusterFile file);
  // None was ever applied: nothing is scaled.
  const std::optional<ClusterFile>& file() const { return file_; }
  // Null: it is in no file, or not in this one.
  const v1::NodeType* FindType(const std::string& name) const;

  // Adds or replaces.
  void Put(InstanceRecord instance);
  // Nothing when it is not here.
  void Remove(const InstanceId& id);
  // Null: it is gone.
  const InstanceRecord* Find(const InstanceId& id) const;
  // That has joined as this node; null: none has.
  const InstanceRecord* OfNode(const NodeId& node) const;
  // Whether another one than `id` is that machine of the provider.
  bool IsAnothers(const std::string& provider_id, const InstanceId& id) const;
  const std::map<InstanceId, InstanceRecord>& instances() const {
    return instances_;
  }

  void PutCapacity(CapacityRecord capacity);
  void RemoveCapacity(const CapacityKey& key);
  const std::map<CapacityKey, CapacityRecord>& capacity() const {
    return capacity_;
  }
  // Another one after each change.
  uint64_t version() const { return version_; }
  // Another one after each change of what people want: the file, and capacity.
  uint64_t wants_version() const { return wants_version_; }

 private:
  std::optional<ClusterFile> file_;
  std::map<InstanceId, InstanceRecord> instances_;
  std::map<NodeId, InstanceId> nodes_;
  std::map<CapacityKey, CapacityRecord> capacity_;
  uint64_t version_ = 0;
  uint64_t wants_version_ = 0;
};

// Its node has not joined yet.
inline bool IsLaunching(const InstanceRecord& instance) {
  return instance.state() < v1::INSTANCE_STATE_JOINED;
}

}  // namespace cohort::head
