#include "head/placement/placement_index.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"

#include "common/check.h"

namespace cohort::head {
namespace {

// Whether any amount is larger in `after`.
bool Grew(const ResourceSet& before, const ResourceSet& after) {
  return std::any_of(after.begin(), after.end(),
                     [&before](const ResourceSet::Entry& entry) {
                       return entry.second > before.Get(entry.first);
                     });
}

bool Grew(const std::vector<Amount>& before, const std::vector<Amount>& after) {
  if (before.size() != after.size()) return true;
  return !std::equal(after.begin(), after.end(), before.begin(),
                     [](Amount now, Amount then) { return now <= then; });
}

// Whether a node that becomes `after` may take what it could not.
bool MayGain(const NodeForm* before, const NodeForm& after) {
  if (after.gate != NodeGate::kOpen) return false;
  return before == nullptr || before->gate != NodeGate::kOpen ||
         before->taints != after.taints ||
         before->accelerator != after.accelerator ||
         Grew(before->available, after.available) ||
         Grew(before->shares, after.shares);
}

void Insert(NodesById& nodes, const NodeSnapshot* node) {
  COHORT_CHECK(nodes.emplace(node->id, node).second) << node->id;
}

}  // namespace

// ---- groups ----

void NodeGroup::Add(const NodeForm* form, const Labels* labels,
                    const NodeSnapshot* node) {
  Bucket& bucket = buckets_[form];
  Insert(bucket.nodes, node);
  Insert(bucket.by_labels[labels], node);
}

void NodeGroup::Remove(const NodeForm* form, const Labels* labels,
                       const NodeId& node) {
  const auto found = buckets_.find(form);
  COHORT_CHECK(found != buckets_.end()) << node;
  Bucket& bucket = found->second;
  const auto same_labels = bucket.by_labels.find(labels);
  COHORT_CHECK(same_labels != bucket.by_labels.end()) << node;
  COHORT_CHECK(same_labels->second.erase(node) == 1) << node;
  COHORT_CHECK(bucket.nodes.erase(node) == 1) << node;
  if (same_labels->second.empty()) bucket.by_labels.erase(same_labels);
  if (bucket.nodes.empty()) buckets_.erase(found);
}

// ---- the index ----

size_t PlacementIndex::FormHash::operator()(const FormPtr& form) const {
  return absl::Hash<NodeForm>()(*form);
}

void PlacementIndex::Put(NodeSnapshot put) {
  ++version_;
  const NodeId id = put.id;
  const auto snapshot = std::make_shared<const NodeSnapshot>(std::move(put));
  std::unique_ptr<Node>& node = nodes_[id];
  if (node == nullptr) {
    node = std::make_unique<Node>();
    node->labels = Intern(snapshot->labels);
    node->form = Intern(FormOf(*snapshot));
    node->changed_at = version_;
    names_.emplace(snapshot->name, id);
    node->snapshot = snapshot;
    Enter(*node);
    NoteGain(id, nullptr, node->form);
    return;
  }
  const FormPtr before = node->form;
  const bool relabelled = node->snapshot->labels != snapshot->labels ||
                          node->snapshot->name != snapshot->name;
  Leave(*node);
  if (relabelled) {
    names_.erase({node->snapshot->name, id});
    names_.emplace(snapshot->name, id);
    const Labels* const labels = Intern(snapshot->labels);
    ForgetLabels(node->labels);
    node->labels = labels;
  }
  node->form = Intern(FormOf(*snapshot));
  node->changed_at = version_;
  node->snapshot = snapshot;
  Enter(*node);
  if (!all_.Has(before.get())) forms_.erase(before);
  // With other labels it is another node.
  NoteGain(id, relabelled ? nullptr : before, node->form);
}

void PlacementIndex::Remove(const NodeId& id) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end()) return;
  ++version_;
  Node& node = *found->second;
  Leave(node);
  if (!all_.Has(node.form.get())) forms_.erase(node.form);
  ForgetLabels(node.labels);
  names_.erase({node.snapshot->name, id});
  nodes_.erase(found);
}

const NodeSnapshot* PlacementIndex::Find(const NodeId& id) const {
  const auto found = nodes_.find(id);
  return found == nodes_.end() ? nullptr : found->second->snapshot.get();
}

std::shared_ptr<const NodeSnapshot> PlacementIndex::Share(
    const NodeId& id) const {
  const auto found = nodes_.find(id);
  return found == nodes_.end() ? nullptr : found->second->snapshot;
}

uint64_t PlacementIndex::ChangedAt(const NodeId& id) const {
  const auto found = nodes_.find(id);
  return found == nodes_.end() ? 0 : found->second->changed_at;
}

PlacementIndex::FormPtr PlacementIndex::Intern(NodeForm form) {
  return *forms_.insert(std::make_shared<const NodeForm>(std::move(form)))
              .first;
}

// Counts the node that is to have them.
const Labels* PlacementIndex::Intern(const Labels& labels) {
  const auto place = labels_.try_emplace(labels, 0).first;
  ++place->second;
  return &place->first;
}

void PlacementIndex::ForgetLabels(const Labels* labels) {
  const auto found = labels_.find(*labels);
  if (--found->second == 0) labels_.erase(found);
}

void PlacementIndex::Enter(const Node& node) {
  all_.Add(node.form.get(), node.labels, node.snapshot.get());
  for (auto& [level, index] : levels_) {
    const auto value = node.labels->find(level);
    if (value == node.labels->end()) continue;
    index.domains[value->second].Add(node.form.get(), node.labels,
                                     node.snapshot.get());
  }
}

void PlacementIndex::Leave(const Node& node) {
  const NodeId& id = node.snapshot->id;
  for (auto& [level, index] : levels_) {
    const auto value = node.labels->find(level);
    if (value == node.labels->end()) continue;
    const auto domain = index.domains.find(value->second);
    domain->second.Remove(node.form.get(), node.labels, id);
    if (domain->second.empty()) index.domains.erase(domain);
  }
  all_.Remove(node.form.get(), node.labels, id);
}

const Domains& PlacementIndex::DomainsOf(const std::string& name) const {
  const auto [place, fresh] = levels_.try_emplace(name);
  Level& level = place->second;
  level.asked_for = ++asked_;
  if (!fresh) return level.domains;
  for (const auto& [id, node] : nodes_) {
    const auto value = node->labels->find(name);
    if (value == node->labels->end()) continue;
    level.domains[value->second].Add(node->form.get(), node->labels,
                                     node->snapshot.get());
  }
  if (levels_.size() > kLevelsMax) {
    levels_.erase(std::min_element(
        levels_.begin(), levels_.end(), [](const auto& a, const auto& b) {
          return a.second.asked_for < b.second.asked_for;
        }));
  }
  return level.domains;
}

NodeGroup PlacementIndex::SelectedByName(const LabelSelector& selector) const {
  NodeGroup group;
  const auto add = [&](const NodeId& id) {
    const Node& node = *nodes_.at(id);
    if (HostAllows(*node.snapshot, selector)) {
      group.Add(node.form.get(), node.labels, node.snapshot.get());
    }
  };
  for (const LabelSelector::Requirement& requirement :
       selector.requirements()) {
    if (requirement.key != kHostLevel ||
        requirement.op != LabelSelector::Operator::kIn) {
      continue;
    }
    std::set<NodeId> selected;
    for (const std::string& name : requirement.values) {
      for (auto at = names_.lower_bound({name, NodeId()});
           at != names_.end() && at->first == name; ++at) {
        selected.insert(at->second);
      }
      const auto id = NodeId::FromHex(name);
      if (id.ok() && nodes_.contains(*id)) selected.insert(*id);
    }
    for (const NodeId& id : selected) add(id);
    return group;
  }
  for (const auto& [id, node] : nodes_) add(id);
  return group;
}

// ---- gains ----

void PlacementIndex::NoteGain(const NodeId& node, FormPtr before,
                              FormPtr after) {
  if (gains_.lost || !MayGain(before.get(), *after)) return;
  if (gains_.gains.size() == kGainsMax) {
    gains_ = {.lost = true, .gains = {}};
    return;
  }
  gains_.gains.push_back({node, std::move(before), std::move(after)});
}

Gains PlacementIndex::TakeGains() { return std::exchange(gains_, {}); }

}  // namespace cohort::head
