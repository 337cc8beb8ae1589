#include "head/placement/candidates.h"

#include <algorithm>
#include <limits>
#include <map>

namespace cohort::head {
namespace {

// What a node of this form would keep from others.
struct NodeSize {
  int64_t broken;  // whole GPUs of which workers would take a part
  Amount gpus;
  int64_t capacity;
  Amount cpus;
  Amount memory;

  friend auto operator<=>(const NodeSize&, const NodeSize&) = default;
};

// What a request makes of GPUs, worked out once a plan.
class GpuWish {
 public:
  explicit GpuWish(const GangRequest& request)
      : gpus_(request.per_worker.Get(kGpu)),
        parts_(!gpus_.IsZero() && gpus_ < Amount::FromUnits(1)),
        packed_(request.strategy == v1::PLACEMENT_STRATEGY_PACK ||
                request.strategy == v1::PLACEMENT_STRATEGY_STRICT_PACK) {}

  bool any() const { return !gpus_.IsZero(); }

  // Workers that find room on GPUs that are broken already.
  int64_t FitOnBroken(const NodeForm& form, int64_t capacity) const {
    return parts_ ? std::min(capacity, CapacityOnBroken(form, gpus_)) : 0;
  }

  // Whole GPUs that `workers` break where so many fit on broken ones.
  int64_t Broken(int64_t workers, int64_t fit_on_broken) const {
    return parts_ ? GpusBroken(gpus_, workers, fit_on_broken) : 0;
  }

  // As the gang comes to a node: all that fit, or one after the other
  // elsewhere.
  int64_t BrokenOn(const NodeForm& form, int64_t capacity) const {
    return Broken(packed_ ? capacity : 1, FitOnBroken(form, capacity));
  }

 private:
  const Amount gpus_;
  const bool parts_;
  const bool packed_;
};

// A node whose GPUs are all taken is still kept from a GPU job by what it gives
// to others: without a wish for GPUs its total counts.
NodeSize NodeSizeOf(const NodeForm& form, int64_t capacity,
                    const GpuWish& wish) {
  const ResourceSet& gpus = wish.any() ? form.available : form.total;
  return {.broken = wish.BrokenOn(form, capacity),
          .gpus = gpus.Get(kGpu),
          .capacity = capacity,
          .cpus = form.available.Get(kCpu),
          .memory = form.available.Get(kMemory)};
}

}  // namespace

// ---- Fit ----

int64_t Fit::CapacityOf(const NodeForm& form) {
  const auto [place, fresh] = capacities_.try_emplace(&form, 0);
  if (fresh && FormAllows(form, request_)) {
    place->second = Capacity(form, request_);
  }
  return place->second;
}

int64_t Fit::IdleCapacityOf(const NodeForm& form) {
  const auto [place, fresh] = idle_capacities_.try_emplace(&form, 0);
  if (fresh && FormAllowsIdle(form, request_)) {
    place->second = IdleCapacity(form, request_);
  }
  return place->second;
}

bool Fit::Selects(const Labels& labels) {
  const auto [place, fresh] = selects_.try_emplace(&labels, false);
  if (fresh) place->second = LabelsAllow(labels, request_.selector);
  return place->second;
}

std::vector<const NodesById*> Fit::SelectedIn(const NodeGroup::Bucket& bucket) {
  if (request_.selector.empty()) return {&bucket.nodes};
  std::vector<const NodesById*> sets;
  for (const auto& [labels, nodes] : bucket.by_labels) {
    if (Selects(*labels)) sets.push_back(&nodes);
  }
  return sets;
}

int64_t Fit::CountIn(const NodeGroup::Bucket& bucket) {
  if (request_.selector.empty()) {
    return static_cast<int64_t>(bucket.nodes.size());
  }
  size_t count = 0;
  for (const NodesById* const nodes : SelectedIn(bucket)) {
    count += nodes->size();
  }
  return static_cast<int64_t>(count);
}

// ---- Scope ----

Scope::Scope(const PlacementIndex& nodes, const LabelSelector& selector)
    : index_(nodes) {
  if (SelectsByName(selector)) named_ = nodes.SelectedByName(selector);
}

const NodeGroup& Scope::nodes() const {
  return named_.has_value() ? *named_ : index_.all();
}

const Domains& Scope::DomainsOf(const std::string& level) const {
  if (!named_.has_value()) return index_.DomainsOf(level);
  named_domains_.clear();
  for (const auto& [form, bucket] : named_->buckets()) {
    for (const auto& [labels, nodes] : bucket.by_labels) {
      const auto value = labels->find(level);
      if (value == labels->end()) continue;
      NodeGroup& domain = named_domains_[value->second];
      for (const auto& [id, node] : nodes) domain.Add(form, labels, node);
    }
  }
  return named_domains_;
}

// ---- tiers ----

Tier::Tier(int64_t node_capacity, std::vector<const NodesById*> nodes)
    : capacity(node_capacity), sets_(std::move(nodes)) {
  for (const NodesById* const set : sets_) {
    left_ += static_cast<int64_t>(set->size());
  }
}

bool Tier::After(const Range& a, const Range& b) {
  return b.first->first < a.first->first;
}

const NodeSnapshot* Tier::Next() {
  if (heap_.empty()) {
    heap_.reserve(sets_.size());
    for (const NodesById* const set : sets_) {
      heap_.emplace_back(set->begin(), set->end());
    }
    std::make_heap(heap_.begin(), heap_.end(), After);
  }
  std::pop_heap(heap_.begin(), heap_.end(), After);
  Range& lowest = heap_.back();
  const NodeSnapshot* const node = lowest.first->second;
  --left_;
  if (++lowest.first == lowest.second) {
    heap_.pop_back();
  } else {
    std::push_heap(heap_.begin(), heap_.end(), After);
  }
  return node;
}

void Tier::Join(Tier other) {
  sets_.insert(sets_.end(), other.sets_.begin(), other.sets_.end());
  left_ += other.left_;
}

std::vector<Tier> FindTiers(const NodeGroup& nodes, const GangRequest& request,
                            Fit& fit) {
  const GpuWish wish(request);
  fit.Reserve(nodes.buckets().size());
  std::map<NodeSize, Tier> tiers;
  for (const auto& [form, bucket] : nodes.buckets()) {
    const int64_t capacity = fit.CapacityOf(*form);
    if (capacity == 0) continue;
    Tier tier(capacity, fit.SelectedIn(bucket));
    if (tier.left() == 0) continue;
    const auto [place, fresh] =
        tiers.try_emplace(NodeSizeOf(*form, capacity, wish), tier);
    if (!fresh) place->second.Join(std::move(tier));
  }
  std::vector<Tier> ordered;
  ordered.reserve(tiers.size());
  for (auto& [size, tier] : tiers) ordered.push_back(std::move(tier));
  return ordered;
}

// ---- room ----

void Room::Add(int64_t capacity, int64_t nodes_like_it) {
  if (capacity == 0 || nodes_like_it == 0) return;
  workers += capacity * nodes_like_it;
  nodes += nodes_like_it;
  most = std::max(most, capacity);
}

bool Room::Holds(const GangRequest& request) const {
  return MissingFor(request) <= 0;
}

int64_t Room::MissingFor(const GangRequest& request) const {
  switch (request.strategy) {
    case v1::PLACEMENT_STRATEGY_STRICT_PACK:
      return std::max<int64_t>(request.num_workers - most, 0);
    case v1::PLACEMENT_STRATEGY_STRICT_SPREAD:
      return std::max<int64_t>(request.num_workers - nodes, 0);
    default:
      return std::max<int64_t>(request.num_workers - workers, 0);
  }
}

Room RoomIn(const std::vector<Tier>& tiers) {
  Room room;
  for (const Tier& tier : tiers) room.Add(tier.capacity, tier.left());
  return room;
}

Room RoomIn(const NodeGroup& nodes, Fit& fit, bool idle) {
  Room room;
  if (!idle) fit.Reserve(nodes.buckets().size());
  for (const auto& [form, bucket] : nodes.buckets()) {
    const int64_t capacity =
        idle ? fit.IdleCapacityOf(*form) : fit.CapacityOf(*form);
    if (capacity > 0) room.Add(capacity, fit.CountIn(bucket));
  }
  return room;
}

std::optional<DomainSize> SizeOf(const NodeGroup& nodes,
                                 const GangRequest& request, Fit& fit) {
  const GpuWish wish(request);
  Room room;
  DomainSize size;
  int64_t fit_on_broken = 0;
  for (const auto& [form, bucket] : nodes.buckets()) {
    const int64_t capacity = fit.CapacityOf(*form);
    const int64_t count = capacity == 0 ? 0 : fit.CountIn(bucket);
    if (count == 0) continue;
    room.Add(capacity, count);
    const NodeSize one = NodeSizeOf(*form, capacity, wish);
    size.gpus += one.gpus.Times(count);
    size.cpus += one.cpus.Times(count);
    size.memory += one.memory.Times(count);
    fit_on_broken += wish.FitOnBroken(*form, capacity) * count;
  }
  if (!room.Holds(request)) return std::nullopt;
  size.broken = wish.Broken(request.num_workers, fit_on_broken);
  size.capacity = room.workers;
  return size;
}

bool IsBoundToADomain(const GangRequest& request) {
  return !request.topology.level.empty() && request.topology.required;
}

bool MayShareANode(const GangRequest& request) {
  return request.num_workers == 1 ||
         request.strategy != v1::PLACEMENT_STRATEGY_STRICT_SPREAD;
}

bool OnOneNode(const GangRequest& request) {
  return request.strategy == v1::PLACEMENT_STRATEGY_STRICT_PACK ||
         (request.topology.required && request.topology.level == kHostLevel);
}

}  // namespace cohort::head
