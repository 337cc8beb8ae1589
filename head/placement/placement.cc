#include "head/placement/placement.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"

#include "head/placement/candidates.h"
#include "head/placement/refusal.h"

namespace cohort::head {
namespace {

// ---- dealing workers to nodes ----
// The dealers get tiers that hold the gang, small before big.

struct Dealt {
  const NodeSnapshot* node;
  int64_t workers;
};

// As few nodes as can be: the roomiest first, and for the rest the smallest
// that takes it whole.  With one node that is STRICT_PACK.
std::vector<Dealt> DealPacked(std::vector<Tier>& tiers, int64_t workers) {
  std::vector<Tier*> roomiest_first;
  roomiest_first.reserve(tiers.size());
  for (Tier& tier : tiers) roomiest_first.push_back(&tier);
  std::stable_sort(
      roomiest_first.begin(), roomiest_first.end(),
      [](const Tier* a, const Tier* b) { return a->capacity > b->capacity; });
  std::vector<Dealt> dealt;
  for (Tier* const tier : roomiest_first) {
    while (tier->capacity < workers && tier->left() > 0) {
      dealt.push_back({tier->Next(), tier->capacity});
      workers -= tier->capacity;
    }
    if (tier->capacity >= workers && tier->left() > 0) break;
  }
  for (Tier& tier : tiers) {
    if (tier.left() == 0 || tier.capacity < workers) continue;
    dealt.push_back({tier.Next(), workers});
    break;
  }
  return dealt;
}

// How far every node is filled, and how many get one more.
struct Level {
  int64_t level = 0;
  int64_t left = 0;
};

Level FindLevel(const std::vector<Tier>& tiers, int64_t workers) {
  std::vector<std::pair<int64_t, int64_t>> capacities;  // and how many nodes
  capacities.reserve(tiers.size());
  int64_t open = 0;
  for (const Tier& tier : tiers) {
    capacities.emplace_back(tier.capacity, tier.left());
    open += tier.left();
  }
  std::sort(capacities.begin(), capacities.end());
  Level filled{.level = 0, .left = workers};
  for (const auto& [capacity, nodes] : capacities) {
    if ((capacity - filled.level) * open > filled.left) {
      filled.level += filled.left / open;
      filled.left %= open;
      break;
    }
    filled.left -= (capacity - filled.level) * open;
    filled.level = capacity;
    open -= nodes;
  }
  return filled;
}

// Water filling: every node up to a level, the smallest one more.
std::vector<Dealt> DealSpread(std::vector<Tier>& tiers, int64_t workers) {
  auto [level, left] = FindLevel(tiers, workers);
  std::vector<Dealt> dealt;
  for (Tier& tier : tiers) {
    while (tier.left() > 0 && (level > 0 || left > 0)) {
      const int64_t more = left > 0 && tier.capacity > level ? 1 : 0;
      left -= more;
      dealt.push_back({tier.Next(), std::min(tier.capacity, level) + more});
    }
  }
  return dealt;
}

std::vector<Dealt> DealOneEach(std::vector<Tier>& tiers, int64_t workers) {
  std::vector<Dealt> dealt;
  for (Tier& tier : tiers) {
    while (workers > 0 && tier.left() > 0) {
      dealt.push_back({tier.Next(), 1});
      --workers;
    }
  }
  return dealt;
}

std::vector<Dealt> Deal(std::vector<Tier>& tiers, const GangRequest& request) {
  // All nodes take equally many, so as few as can be are as many as are asked.
  if (request.workers_per_node > 0) {
    return DealPacked(tiers, request.num_workers);
  }
  switch (request.strategy) {
    case v1::PLACEMENT_STRATEGY_SPREAD:
      return DealSpread(tiers, request.num_workers);
    case v1::PLACEMENT_STRATEGY_STRICT_SPREAD:
      return DealOneEach(tiers, request.num_workers);
    default:
      return DealPacked(tiers, request.num_workers);
  }
}

// ---- devices ----

// Hands out devices of one node to one worker after another.
class DeviceDealer {
 public:
  DeviceDealer(const NodeSnapshot& node, Amount gpus)
      : gpus_(gpus), devices_(node.devices) {
    if (gpus.IsZero()) return;
    for (size_t i = 0; i < devices_.size(); ++i) {
      const DeviceShare& device = devices_[i];
      if (IsFraction(gpus)) {
        if (device.free >= gpus)
          shares_.insert({device.suspect, device.free, i});
      } else if (device.free == kWholeDevice) {
        whole_.push_back(i);
      }
    }
    // DV-5
    std::stable_partition(whole_.begin(), whole_.end(),
                          [this](size_t i) { return !devices_[i].suspect; });
  }

  std::map<std::string, Amount> Next() {
    if (gpus_.IsZero()) return {};
    return IsFraction(gpus_) ? NextShare() : NextWhole();
  }

 private:
  // The device with the least left: whole ones stay whole.  Suspect ones last.
  std::map<std::string, Amount> NextShare() {
    const auto [suspect, free, index] = *shares_.begin();
    shares_.erase(shares_.begin());
    if (free - gpus_ >= gpus_) shares_.insert({suspect, free - gpus_, index});
    return {{devices_[index].id, gpus_}};
  }

  std::map<std::string, Amount> NextWhole() {
    std::map<std::string, Amount> taken;
    for (int64_t i = 0; i < gpus_.WholeUnits(); ++i) {
      taken[devices_[whole_[next_whole_++]].id] = kWholeDevice;
    }
    return taken;
  }

  const Amount gpus_;
  const std::vector<DeviceShare>& devices_;
  // That hold a worker: whether it is suspect, what is left of it, which.
  std::set<std::tuple<bool, Amount, size_t>> shares_;
  std::vector<size_t> whole_;
  size_t next_whole_ = 0;
};

PlannedPart MakePart(const Dealt& dealt, const ResourceSet& per_worker,
                     int first_rank) {
  PlannedPart part;
  part.node = dealt.node->id;
  DeviceDealer dealer(*dealt.node, per_worker.Get(kGpu));
  part.ranks.reserve(static_cast<size_t>(dealt.workers));
  for (int local = 0; local < dealt.workers; ++local) {
    part.ranks.push_back({.rank = first_rank + local,
                          .local_rank = local,
                          .devices = dealer.Next()});
  }
  return part;
}

Plan MakePlan(std::vector<Dealt> dealt, const ResourceSet& per_worker) {
  // The fullest node first: rank 0 has most of its peers beside it.
  std::sort(dealt.begin(), dealt.end(), [](const Dealt& a, const Dealt& b) {
    return std::tie(b.workers, a.node->id) < std::tie(a.workers, b.node->id);
  });
  Plan plan;
  plan.parts.reserve(dealt.size());
  int rank = 0;
  for (const Dealt& one : dealt) {
    plan.parts.push_back(MakePart(one, per_worker, rank));
    rank += static_cast<int>(one.workers);
  }
  return plan;
}

// ---- where ----

std::optional<Plan> PlaceIn(const NodeGroup& nodes, const GangRequest& request,
                            Fit& fit) {
  std::vector<Tier> tiers = FindTiers(nodes, request, fit);
  if (!RoomIn(tiers).Holds(request)) return std::nullopt;
  return MakePlan(Deal(tiers, request), request.per_worker);
}

std::optional<Plan> PlaceInOneDomain(const Domains& domains,
                                     const GangRequest& request, Fit& fit) {
  const NodeGroup* best = nullptr;
  DomainSize best_size;
  for (const auto& [value, nodes] : domains) {
    const std::optional<DomainSize> size = SizeOf(nodes, request, fit);
    if (!size.has_value()) continue;
    // Of equal ones the first by name.
    if (best == nullptr || *size < best_size) {
      best = &nodes;
      best_size = *size;
    }
  }
  if (best == nullptr) return std::nullopt;
  return PlaceIn(*best, request, fit);
}

std::optional<Plan> PlaceOn(const Scope& scope, const GangRequest& request) {
  Fit fit(request);
  const TopologyWish& wish = request.topology;
  if (wish.level.empty()) return PlaceIn(scope.nodes(), request, fit);
  std::optional<Plan> plan;
  if (wish.level == kHostLevel) {
    if (MayShareANode(request)) {
      GangRequest on_one = request;
      on_one.strategy = v1::PLACEMENT_STRATEGY_STRICT_PACK;
      plan = PlaceIn(scope.nodes(), on_one, fit);
    }
  } else {
    plan = PlaceInOneDomain(scope.DomainsOf(wish.level), request, fit);
  }
  if (plan.has_value() || wish.required) return plan;
  return PlaceIn(scope.nodes(), request, fit);
}

// Whether PlaceOn finds a plan, without making it where there is room for it
// anywhere or nowhere.
bool HasPlan(const Scope& scope, const GangRequest& request) {
  if (IsBoundToADomain(request)) return PlaceOn(scope, request).has_value();
  Fit fit(request);
  return RoomIn(scope.nodes(), fit, /*idle=*/false).Holds(request);
}

}  // namespace

Placement PlaceGang(const PlacementIndex& nodes, const GangRequest& request) {
  if (std::optional<Refusal> nonsense = RefuseNonsense(request)) {
    return *std::move(nonsense);
  }
  const Scope scope(nodes, request.selector);
  if (std::optional<Plan> plan = PlaceOn(scope, request)) {
    return *std::move(plan);
  }
  return Refuse(scope, request);
}

Placement PlaceGang(std::span<const NodeSnapshot> nodes,
                    const GangRequest& request) {
  PlacementIndex index;
  for (const NodeSnapshot& node : nodes) index.Put(node);
  return PlaceGang(index, request);
}

bool Fits(const PlacementIndex& nodes, const GangRequest& request) {
  return !RefuseNonsense(request).has_value() &&
         HasPlan(Scope(nodes, request.selector), request);
}

Refusal WhyNotNow(const PlacementIndex& nodes, const GangRequest& request) {
  if (std::optional<Refusal> nonsense = RefuseNonsense(request)) {
    return *std::move(nonsense);
  }
  return Refuse(Scope(nodes, request.selector), request);
}

int64_t GainedWorkers(const GangRequest& request, const NodeSnapshot& node,
                      const NodeForm* before, const NodeForm& after) {
  if (!LabelsAllow(node.labels, request.selector) ||
      !HostAllows(node, request.selector)) {
    return 0;
  }
  const TopologyWish& wish = request.topology;
  if (wish.required && wish.level != kHostLevel &&
      !node.labels.contains(wish.level)) {
    return 0;
  }
  Fit fit(request);
  const int64_t now = fit.CapacityOf(after);
  const int64_t then = before == nullptr ? 0 : fit.CapacityOf(*before);
  if (OnOneNode(request)) {
    return now >= request.num_workers && then < now ? request.num_workers : 0;
  }
  if (request.strategy == v1::PLACEMENT_STRATEGY_STRICT_SPREAD) {
    return now > 0 && then == 0 ? 1 : 0;
  }
  return std::max<int64_t>(now - then, 0);
}

}  // namespace cohort::head
