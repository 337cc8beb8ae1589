#include "head/placement.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace cohort::head {
namespace {

constexpr Amount kWholeDevice = Amount::FromTenThousandths(Amount::kScale);

// How many nodes are left of a plan when every node is as `Free` shows it.
struct Free {
  const ResourceSet& resources;
  int64_t whole_devices;        // that nobody has a share of
  const NodeSnapshot* devices;  // shares; null: all are whole
};

Free NowOf(const NodeSnapshot& node) {
  const auto is_whole = [](const DeviceShare& device) {
    return device.free == kWholeDevice;
  };
  return {node.available,
          std::count_if(node.devices.begin(), node.devices.end(), is_whole),
          &node};
}

Free IdleOf(const NodeSnapshot& node) {
  return {node.total, static_cast<int64_t>(node.devices.size()), nullptr};
}

bool IsFraction(Amount gpus) { return gpus < kWholeDevice; }

// Workers that fit on the devices alone.
int64_t DeviceCapacity(const Free& free, Amount gpus) {
  if (!IsFraction(gpus)) return free.whole_devices / gpus.WholeUnits();
  const int64_t need = gpus.ten_thousandths();
  if (free.devices == nullptr) {
    return free.whole_devices * (Amount::kScale / need);
  }
  int64_t workers = 0;
  for (const DeviceShare& device : free.devices->devices) {
    workers += std::max<int64_t>(device.free.ten_thousandths(), 0) / need;
  }
  return workers;
}

// Workers that fit by one resource.
int64_t CapacityBy(const Free& free, const ResourceSet::Entry& need) {
  const int64_t by_amount =
      std::max<int64_t>(free.resources.Get(need.first).ten_thousandths(), 0) /
      need.second.ten_thousandths();
  if (need.first != kGpu) return by_amount;
  return std::min(by_amount, DeviceCapacity(free, need.second));
}

// Workers that fit, at most `most`.  Workers are equal, so this is exact: any
// way of filling the node reaches it.
int64_t Capacity(const Free& free, const ResourceSet& per_worker,
                 int64_t most) {
  int64_t workers = most;
  for (const ResourceSet::Entry& need : per_worker) {
    if (workers == 0) break;
    workers = std::min(workers, CapacityBy(free, need));
  }
  return workers;
}

// A node that can hold workers, with what orders it among others.
struct Candidate {
  const NodeSnapshot* node;
  int64_t capacity;
  Amount gpus;
  Amount cpus;
  Amount memory;
  int64_t workers = 0;  // dealt to it
};

// Small before big: what it would keep from others first.
bool Smaller(const Candidate& a, const Candidate& b) {
  const auto key = [](const Candidate& c) {
    return std::tie(c.gpus, c.capacity, c.cpus, c.memory, c.node->id);
  };
  return key(a) < key(b);
}

std::vector<Candidate> FindCandidates(std::span<const NodeSnapshot> nodes,
                                      const GangRequest& request) {
  const bool wants_gpus = !request.per_worker.Get(kGpu).IsZero();
  std::vector<Candidate> candidates;
  for (const NodeSnapshot& node : nodes) {
    const int64_t capacity =
        Capacity(NowOf(node), request.per_worker, request.num_workers);
    if (capacity == 0) continue;
    // A node whose GPUs are all taken is still kept from a GPU job by what it
    // gives to others: without a wish for GPUs its total counts.
    const ResourceSet& gpus = wants_gpus ? node.available : node.total;
    candidates.push_back({.node = &node,
                          .capacity = capacity,
                          .gpus = gpus.Get(kGpu),
                          .cpus = node.available.Get(kCpu),
                          .memory = node.available.Get(kMemory)});
  }
  std::sort(candidates.begin(), candidates.end(), Smaller);
  return candidates;
}

// Whether capacities, each at most `workers`, hold the gang.
bool Holds(const std::vector<int64_t>& capacities, int64_t workers,
           PlacementStrategy strategy) {
  switch (strategy) {
    case PlacementStrategy::kPack:
    case PlacementStrategy::kSpread: {
      int64_t sum = 0;
      for (const int64_t capacity : capacities) {
        sum += capacity;
        if (sum >= workers) return true;
      }
      return false;
    }
    case PlacementStrategy::kStrictPack:
      return std::any_of(capacities.begin(), capacities.end(),
                         [workers](int64_t c) { return c >= workers; });
    case PlacementStrategy::kStrictSpread:
      return std::count_if(capacities.begin(), capacities.end(),
                           [](int64_t c) { return c > 0; }) >= workers;
  }
  return false;
}

// The dealers below get candidates that hold the gang, small before big.

// As few nodes as can be: the roomiest first, and for the rest the smallest
// that takes it whole.  With one node that is STRICT_PACK.
void DealPacked(std::vector<Candidate>& candidates, int64_t workers) {
  std::vector<size_t> by_capacity(candidates.size());
  std::iota(by_capacity.begin(), by_capacity.end(), size_t{0});
  std::stable_sort(by_capacity.begin(), by_capacity.end(),
                   [&candidates](size_t a, size_t b) {
                     return candidates[a].capacity > candidates[b].capacity;
                   });
  size_t next = 0;
  while (candidates[by_capacity[next]].capacity < workers) {
    Candidate& roomiest = candidates[by_capacity[next++]];
    roomiest.workers = roomiest.capacity;
    workers -= roomiest.capacity;
  }
  for (Candidate& candidate : candidates) {
    if (candidate.workers == 0 && candidate.capacity >= workers) {
      candidate.workers = workers;
      return;
    }
  }
}

// Water filling: every node up to a level, the smallest one more.
void DealSpread(std::vector<Candidate>& candidates, int64_t workers) {
  std::vector<int64_t> capacities;
  capacities.reserve(candidates.size());
  for (const Candidate& c : candidates) capacities.push_back(c.capacity);
  std::sort(capacities.begin(), capacities.end());
  int64_t level = 0;
  int64_t left = workers;
  for (size_t i = 0; i < capacities.size(); ++i) {
    const int64_t open = static_cast<int64_t>(capacities.size() - i);
    if ((capacities[i] - level) * open > left) {
      level += left / open;
      left %= open;
      break;
    }
    left -= (capacities[i] - level) * open;
    level = capacities[i];
  }
  for (Candidate& candidate : candidates) {
    candidate.workers = std::min(candidate.capacity, level);
    if (left > 0 && candidate.capacity > level) {
      candidate.workers += 1;
      left -= 1;
    }
  }
}

void Deal(std::vector<Candidate>& candidates, const GangRequest& request) {
  switch (request.strategy) {
    case PlacementStrategy::kPack:
    case PlacementStrategy::kStrictPack:
      DealPacked(candidates, request.num_workers);
      return;
    case PlacementStrategy::kSpread:
      DealSpread(candidates, request.num_workers);
      return;
    case PlacementStrategy::kStrictSpread:
      for (int i = 0; i < request.num_workers; ++i) {
        candidates[static_cast<size_t>(i)].workers = 1;
      }
      return;
  }
}

// --- devices -----------------------------------------------------------------

// Hands out devices of one node to one worker after another.
class DeviceDealer {
 public:
  DeviceDealer(const NodeSnapshot& node, Amount gpus) : gpus_(gpus) {
    if (gpus.IsZero()) return;
    for (size_t i = 0; i < node.devices.size(); ++i) {
      const DeviceShare& device = node.devices[i];
      if (IsFraction(gpus)) {
        if (device.free >= gpus) shares_.insert({device.free, i});
      } else if (device.free == kWholeDevice) {
        whole_.push_back(i);
      }
    }
    devices_ = &node.devices;
  }

  std::map<std::string, Amount> Next() {
    if (gpus_.IsZero()) return {};
    return IsFraction(gpus_) ? NextShare() : NextWhole();
  }

 private:
  // The device with the least left: whole ones stay whole.
  std::map<std::string, Amount> NextShare() {
    const auto [free, index] = *shares_.begin();
    shares_.erase(shares_.begin());
    if (free - gpus_ >= gpus_) shares_.insert({free - gpus_, index});
    return {{(*devices_)[index].id, gpus_}};
  }

  std::map<std::string, Amount> NextWhole() {
    std::map<std::string, Amount> taken;
    for (int64_t i = 0; i < gpus_.WholeUnits(); ++i) {
      taken[(*devices_)[whole_[next_whole_++]].id] = kWholeDevice;
    }
    return taken;
  }

  const Amount gpus_;
  const std::vector<DeviceShare>* devices_ = nullptr;
  std::set<std::pair<Amount, size_t>> shares_;  // that hold a worker
  std::vector<size_t> whole_;
  size_t next_whole_ = 0;
};

PlannedPart MakePart(const Candidate& candidate, const ResourceSet& per_worker,
                     int first_rank) {
  PlannedPart part;
  part.node = candidate.node->id;
  part.resources = per_worker.Times(candidate.workers);
  DeviceDealer dealer(*candidate.node, per_worker.Get(kGpu));
  for (int local = 0; local < candidate.workers; ++local) {
    PlannedRank rank{.rank = first_rank + local,
                     .local_rank = local,
                     .devices = dealer.Next()};
    for (const auto& [id, amount] : rank.devices) part.devices[id] += amount;
    part.ranks.push_back(std::move(rank));
  }
  return part;
}

Plan MakePlan(std::vector<Candidate> candidates,
              const ResourceSet& per_worker) {
  std::erase_if(candidates, [](const Candidate& c) { return c.workers == 0; });
  // The fullest node first: rank 0 has most of its peers beside it.
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) {
                     return std::make_tuple(-a.workers, a.node->id) <
                            std::make_tuple(-b.workers, b.node->id);
                   });
  Plan plan;
  int rank = 0;
  for (const Candidate& candidate : candidates) {
    plan.parts.push_back(MakePart(candidate, per_worker, rank));
    rank += static_cast<int>(candidate.workers);
  }
  return plan;
}

// --- refusals ----------------------------------------------------------------

const char* StrategyName(PlacementStrategy strategy) {
  switch (strategy) {
    case PlacementStrategy::kPack:
      return "PACK";
    case PlacementStrategy::kSpread:
      return "SPREAD";
    case PlacementStrategy::kStrictPack:
      return "STRICT_PACK";
    case PlacementStrategy::kStrictSpread:
      return "STRICT_SPREAD";
  }
  return "unknown strategy";
}

std::string Nodes(size_t n) {
  return absl::StrCat(n, n == 1 ? " node" : " nodes");
}

// "8 x {CPU 1, GPU 1} (PACK)".
std::string Wish(const GangRequest& request) {
  return absl::StrCat(request.num_workers, " x {",
                      request.per_worker.ToString(), "} (",
                      StrategyName(request.strategy), ")");
}

std::string Only(absl::string_view name, Amount amount) {
  if (amount.IsZero()) return "0";
  ResourceSet set;
  set.Set(name, amount);
  // Memory in its own notation; the name is said already.
  return set.ToString().substr(name.size() + 1);
}

// What one resource has to do with the refusal, over all nodes.
struct Shortage {
  ResourceSet::Entry need;
  size_t nodes = 0;  // that cannot hold what they would have to
  Amount free_most;
  Amount total_most;
};

// Workers that one node must hold before it is of any use.
int64_t LeastUseful(const GangRequest& request) {
  return request.strategy == PlacementStrategy::kStrictPack
             ? request.num_workers
             : 1;
}

std::vector<Shortage> FindShortages(std::span<const NodeSnapshot> nodes,
                                    const GangRequest& request) {
  std::vector<Shortage> shortages;
  for (const ResourceSet::Entry& need : request.per_worker) {
    Shortage shortage{.need = need};
    for (const NodeSnapshot& node : nodes) {
      if (CapacityBy(NowOf(node), need) < LeastUseful(request)) {
        ++shortage.nodes;
      }
      shortage.free_most =
          std::max(shortage.free_most, node.available.Get(need.first));
      shortage.total_most =
          std::max(shortage.total_most, node.total.Get(need.first));
    }
    if (shortage.nodes > 0) shortages.push_back(shortage);
  }
  return shortages;
}

// "3 nodes: 2 short of GPU (most free 0 of 1), 1 short of CPU (most free ...)".
std::string DescribeShortages(std::span<const NodeSnapshot> nodes,
                              const GangRequest& request) {
  std::string text;
  for (const Shortage& shortage : FindShortages(nodes, request)) {
    const std::string& name = shortage.need.first;
    absl::StrAppend(&text, text.empty() ? "" : ", ", shortage.nodes,
                    " short of ", name, " (most free on a node ",
                    Only(name, shortage.free_most), " of ",
                    Only(name, shortage.total_most), ")");
  }
  return text.empty() ? ""
                      : absl::StrCat("; ", Nodes(nodes.size()), ": ", text);
}

// "room for 3 of 8 workers on 2 nodes".
std::string DescribeRoom(const std::vector<int64_t>& capacities,
                         const GangRequest& request) {
  const int64_t sum =
      std::accumulate(capacities.begin(), capacities.end(), int64_t{0});
  const auto able = static_cast<size_t>(
      std::count_if(capacities.begin(), capacities.end(),
                    [](int64_t capacity) { return capacity > 0; }));
  const int64_t most =
      capacities.empty()
          ? 0
          : *std::max_element(capacities.begin(), capacities.end());
  switch (request.strategy) {
    case PlacementStrategy::kPack:
    case PlacementStrategy::kSpread:
      break;
    case PlacementStrategy::kStrictPack:
      return absl::StrCat("room for ", most, " of ", request.num_workers,
                          " workers on one node");
    case PlacementStrategy::kStrictSpread:
      return absl::StrCat("room on ", able, " of the ", request.num_workers,
                          " different nodes it must have");
  }
  return absl::StrCat("room for ", sum, " of ", request.num_workers,
                      " workers on ", Nodes(able));
}

std::vector<int64_t> Capacities(std::span<const NodeSnapshot> nodes,
                                const GangRequest& request,
                                Free (*free)(const NodeSnapshot&)) {
  std::vector<int64_t> capacities;
  capacities.reserve(nodes.size());
  for (const NodeSnapshot& node : nodes) {
    capacities.push_back(
        Capacity(free(node), request.per_worker, request.num_workers));
  }
  return capacities;
}

Refusal Refuse(std::span<const NodeSnapshot> nodes,
               const GangRequest& request) {
  Refusal refusal{.reason = absl::StrCat("needs ", Wish(request))};
  if (nodes.empty()) {
    refusal.never_fits_known_nodes = true;
    absl::StrAppend(&refusal.reason, "; no node is registered");
    return refusal;
  }
  const std::vector<int64_t> idle = Capacities(nodes, request, IdleOf);
  refusal.never_fits_known_nodes =
      !Holds(idle, request.num_workers, request.strategy);
  absl::StrAppend(&refusal.reason, "; ",
                  DescribeRoom(Capacities(nodes, request, NowOf), request),
                  " now", DescribeShortages(nodes, request));
  if (refusal.never_fits_known_nodes) {
    absl::StrAppend(&refusal.reason,
                    "; never fits these nodes: idle they have ",
                    DescribeRoom(idle, request));
  }
  return refusal;
}

// Why the request makes no sense; empty when it does.
std::string Nonsense(const GangRequest& request) {
  if (request.num_workers < 1) {
    return absl::StrCat("a gang has at least one worker, this one ",
                        request.num_workers);
  }
  for (const auto& [name, amount] : request.per_worker) {
    if (amount < Amount()) return absl::StrCat(name, " is negative");
  }
  const Amount gpus = request.per_worker.Get(kGpu);
  if (!IsFraction(gpus) && gpus.ten_thousandths() % Amount::kScale != 0) {
    return absl::StrCat(
        "more than one GPU a worker must be a whole number, "
        "not ",
        gpus.ToString());
  }
  return "";
}

}  // namespace

Placement PlaceGang(std::span<const NodeSnapshot> nodes,
                    const GangRequest& request) {
  if (std::string nonsense = Nonsense(request); !nonsense.empty()) {
    return Refusal{.reason = std::move(nonsense),
                   .never_fits_known_nodes = true};
  }
  std::vector<Candidate> candidates = FindCandidates(nodes, request);
  std::vector<int64_t> capacities;
  capacities.reserve(candidates.size());
  for (const Candidate& c : candidates) capacities.push_back(c.capacity);
  if (!Holds(capacities, request.num_workers, request.strategy)) {
    return Refuse(nodes, request);
  }
  Deal(candidates, request);
  return MakePlan(std::move(candidates), request.per_worker);
}

}  // namespace cohort::head
