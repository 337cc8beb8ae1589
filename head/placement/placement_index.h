#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

#include "common/strong_id.h"
#include "head/placement/node_form.h"

namespace cohort::head {

using NodesById = absl::btree_map<NodeId, const NodeSnapshot*>;

// Nodes by form, and those of one form by their labels.
//
//   PI-1: a node is in the bucket of its form, there once in `nodes` and once
//         under its labels; no bucket and no label set is empty.
// A value whose pointers belong to a PlacementIndex.
class NodeGroup {
 public:
  struct Bucket {
    NodesById nodes;
    absl::flat_hash_map<const Labels*, NodesById> by_labels;
  };
  using Buckets = absl::flat_hash_map<const NodeForm*, Bucket>;

  void Add(const NodeForm* form, const Labels* labels,
           const NodeSnapshot* node);
  // REQUIRES: it is here.
  void Remove(const NodeForm* form, const Labels* labels, const NodeId& node);

  bool Has(const NodeForm* form) const { return buckets_.contains(form); }
  bool empty() const { return buckets_.empty(); }
  // In no order that means anything.
  const Buckets& buckets() const { return buckets_; }

 private:
  Buckets buckets_;
};

// The nodes of one value of a label, by that value.
using Domains = std::map<std::string, NodeGroup>;

// A node could take less before.
struct Gain {
  NodeId node;
  // Shared: the index has a form while a node is of it, a gain may keep it.
  std::shared_ptr<const NodeForm> before;  // null: the node was not here
  std::shared_ptr<const NodeForm> after;
};

// The gains since they were last asked for; with `lost`, there were too many to
// remember, and anything may have been gained.
struct Gains {
  bool lost = false;
  std::vector<Gain> gains;
};

// What the planner looks at: all nodes that are alive, by form, by label set
// and, for the topology levels that requests ask for, by domain.
//
//   PI-2: each node is in all(), and in the domain that its label names of each
//         level that is indexed.
//   PI-3: a form or label set that no node has is forgotten.
//   PI-4: whatever a node gains between two TakeGains is in their gains.
//
// A change costs O(log nodes), times the levels indexed, and the length of the
// node's form; a level is indexed when it is first asked for, which costs the
// number of nodes once, and the least recently asked for of more than
// kLevelsMax is dropped.  Thread-compatible, but const methods index levels:
// belongs to one owner, as NodeTable does.
class PlacementIndex {
 public:
  static constexpr size_t kLevelsMax = 8;
  static constexpr size_t kGainsMax = 100'000;

  PlacementIndex() = default;
  PlacementIndex(const PlacementIndex&) = delete;
  PlacementIndex& operator=(const PlacementIndex&) = delete;

  // Adds a node or replaces it.
  void Put(NodeSnapshot node);
  // Nothing when it is not here.
  void Remove(const NodeId& node);

  // Valid until the next change.
  const NodeSnapshot* Find(const NodeId& node) const;
  // The same, for who looks at it elsewhere and later; null: it is not here.
  std::shared_ptr<const NodeSnapshot> Share(const NodeId& node) const;
  // The version() of its last change; 0: it is not here.
  uint64_t ChangedAt(const NodeId& node) const;
  size_t size() const { return nodes_.size(); }
  const NodeGroup& all() const { return all_; }
  const Domains& DomainsOf(const std::string& level) const;
  // The nodes whose names the selector's requirements on `host` allow.
  NodeGroup SelectedByName(const LabelSelector& selector) const;

  // Another one after each change.
  uint64_t version() const { return version_; }
  Gains TakeGains();

 private:
  using FormPtr = std::shared_ptr<const NodeForm>;
  struct Node {
    // Shared: with those who were given it.
    std::shared_ptr<const NodeSnapshot> snapshot;
    FormPtr form;
    const Labels* labels = nullptr;
    uint64_t changed_at = 0;
  };
  struct Level {
    Domains domains;
    uint64_t asked_for = 0;
  };
  struct FormHash {
    size_t operator()(const FormPtr& form) const;
  };
  struct FormEqual {
    bool operator()(const FormPtr& a, const FormPtr& b) const {
      return *a == *b;
    }
  };

  FormPtr Intern(NodeForm form);
  const Labels* Intern(const Labels& labels);
  void ForgetLabels(const Labels* labels);
  void Enter(const Node& node);
  void Leave(const Node& node);
  void NoteGain(const NodeId& node, FormPtr before, FormPtr after);

  absl::flat_hash_map<NodeId, std::unique_ptr<Node>> nodes_;
  std::set<std::pair<std::string, NodeId>> names_;
  absl::flat_hash_set<FormPtr, FormHash, FormEqual> forms_;
  std::map<Labels, size_t> labels_;  // how many nodes have them
  NodeGroup all_;
  mutable std::map<std::string, Level> levels_;
  mutable uint64_t asked_ = 0;
  uint64_t version_ = 0;
  Gains gains_;
};

}  // namespace cohort::head
