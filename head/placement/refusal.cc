#include "head/placement/refusal.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/resource_text.h"

namespace cohort::head {
namespace {

std::string Nodes(int64_t n) {
  return absl::StrCat(n, n == 1 ? " node" : " nodes");
}

// "room for 3 of 8 workers on 2 nodes".
std::string DescribeRoom(const NearestRoom& best, const GangRequest& request) {
  const Room& room = best.room;
  std::string where;
  if (best.domain.has_value()) {
    where = absl::StrCat(" of ", request.topology.level, " ",
                         best.domain->empty() ? "\"\"" : *best.domain);
  }
  switch (request.strategy) {
    case v1::PLACEMENT_STRATEGY_STRICT_PACK:
      return absl::StrCat("room for ", room.most, " of ", request.num_workers,
                          " workers on one node", where);
    case v1::PLACEMENT_STRATEGY_STRICT_SPREAD:
      return absl::StrCat("room on ", room.nodes, " of the ",
                          request.num_workers, " different nodes it must have",
                          where);
    default:
      return absl::StrCat("room for ", room.workers, " of ",
                          request.num_workers, " workers on ",
                          Nodes(room.nodes), where);
  }
}

// ---- what is short ----

// What one resource has to do with the refusal, over all nodes that may be
// used.
struct Shortage {
  ResourceSet::Entry need;
  int64_t nodes = 0;  // that cannot hold what they would have to
  // Of the node that has the most that one worker can use, of several the
  // largest: that, and all that it has; of a part of a GPU the same of one GPU.
  std::pair<Amount, Amount> most;

  bool OfOneGpu() const {
    return need.first == kGpu && need.second < Amount::FromUnits(1);
  }

  void Add(const NodeForm& form, int64_t count, int64_t least_useful) {
    if (CapacityBy(form, need) < least_useful) nodes += count;
    const Amount all =
        OfOneGpu() ? Amount::FromUnits(1) : form.total.Get(need.first);
    most = std::max(most, {FreeFor(form, need, 1), all});
  }
};

// Workers that one node must hold before it is of any use.
int64_t LeastUseful(const GangRequest& request) {
  return OnOneNode(request) ? request.num_workers : LeastOnANode(request);
}

// Why no node of this form may be used; empty when some may.
std::string FormObstacle(const NodeForm& form, const GangRequest& request) {
  if (form.gate != NodeGate::kOpen) return GateName(form.gate);
  if (const Taint* taint = FirstUntolerated(form.taints, request.tolerations)) {
    return absl::StrCat("with taint ", taint->ToString());
  }
  if (FormAllows(form, request)) return "";
  return absl::StrCat("without ", request.accelerator_type);
}

// Why no node with these labels may be used; empty when it may.
std::string LabelObstacle(const Labels& labels, const GangRequest& request) {
  for (const LabelSelector::Requirement& requirement :
       request.selector.requirements()) {
    if (requirement.key == kHostLevel) continue;
    const auto found = labels.find(requirement.key);
    if (!requirement.HoldsFor(found == labels.end() ? nullptr
                                                    : &found->second)) {
      return absl::StrCat("without ", requirement.ToString());
    }
  }
  if (InOneDomain(request) && !labels.contains(request.topology.level)) {
    return absl::StrCat("without label ", request.topology.level);
  }
  return "";
}

// Sorts all nodes by what keeps them from the request.
class Census {
 public:
  explicit Census(const GangRequest& request) : request_(request) {
    for (const ResourceSet::Entry& need : request.per_worker) {
      shortages_.push_back({.need = need});
    }
  }

  void Add(const NodeForm& form, const NodeGroup::Bucket& bucket) {
    const auto all = static_cast<int64_t>(bucket.nodes.size());
    nodes_ += all;
    std::string obstacle = FormObstacle(form, request_);
    if (!obstacle.empty()) {
      obstacles_[std::move(obstacle)] += all;
      return;
    }
    int64_t usable = all;
    if (!request_.selector.empty() || InOneDomain(request_)) {
      for (const auto& [labels, nodes] : bucket.by_labels) {
        obstacle = LabelObstacle(*labels, request_);
        if (obstacle.empty()) continue;
        obstacles_[std::move(obstacle)] += static_cast<int64_t>(nodes.size());
        usable -= static_cast<int64_t>(nodes.size());
      }
    }
    if (usable == 0) return;
    if (KeptByFences(form, request_.per_worker, LeastUseful(request_))) {
      obstacles_["with fenced GPUs"] += usable;
    }
    for (Shortage& shortage : shortages_) {
      shortage.Add(form, usable, LeastUseful(request_));
    }
  }

  // "; 3 nodes: 2 short of GPU (most free on a node 0 of 1), 1 drained".
  std::string ToText() const {
    std::string text;
    for (const Shortage& shortage : shortages_) {
      if (shortage.nodes == 0) continue;
      const std::string& name = shortage.need.first;
      absl::StrAppend(
          &text, text.empty() ? "" : ", ", shortage.nodes, " short of ", name,
          shortage.OfOneGpu() ? " (most free on one GPU "
                              : " (most free on a node ",
          AmountText(name, shortage.most.first, SizeRounding::kDown), " of ",
          AmountText(name, shortage.most.second, SizeRounding::kDown), ")");
    }
    size_t shown = 0;
    for (const auto& [obstacle, nodes] : obstacles_) {
      if (++shown > kObstaclesShown) {
        absl::StrAppend(&text, " and more");
        break;
      }
      absl::StrAppend(&text, text.empty() ? "" : ", ", nodes, " ", obstacle);
    }
    if (text.empty()) return "";
    return absl::StrCat("; ", Nodes(nodes_), ": ", text);
  }

 private:
  static constexpr size_t kObstaclesShown = 8;

  const GangRequest& request_;
  int64_t nodes_ = 0;
  std::vector<Shortage> shortages_;
  std::map<std::string, int64_t> obstacles_;  // and how many nodes have it
};

std::string PerNodeNonsense(const GangRequest& request) {
  const int each = request.workers_per_node;
  if (each == 0) return "";
  if (each < 0 || request.num_workers % each != 0) {
    return absl::StrCat(request.num_workers, " workers are not ", each,
                        " on each of some nodes: give a multiple of ", each);
  }
  if (each > request.ranks_per_node_max) {
    return absl::StrCat(each, " workers are to be on each node, and at most ",
                        request.ranks_per_node_max, " of a job ever are");
  }
  if (OnOneNode(request) && request.num_workers != each) {
    return absl::StrCat("all ", request.num_workers,
                        " workers are to be on one node, and ", each,
                        " on each node");
  }
  if (each > 1 && !MayShareANode(request)) {
    return absl::StrCat(
        "STRICT_SPREAD puts each worker on a node of its own, "
        "and ",
        each, " are to be on each node");
  }
  return "";
}

std::string Nonsense(const GangRequest& request) {
  if (!request.fault.empty()) return request.fault;
  if (request.num_workers < 1) {
    return absl::StrCat("a gang has at least one worker, this one ",
                        request.num_workers);
  }
  for (const auto& [name, amount] : request.per_worker) {
    if (amount < Amount()) return absl::StrCat(name, " is negative");
  }
  const Amount gpus = request.per_worker.Get(kGpu);
  const bool fraction = gpus < Amount::FromUnits(1);
  if (!fraction && gpus.ten_thousandths() % Amount::kScale != 0) {
    return absl::StrCat(
        "more than one GPU a worker must be a whole number, "
        "not ",
        gpus.ToString());
  }
  if (OnOneNode(request) && request.num_workers > request.ranks_per_node_max) {
    return absl::StrCat("all ", request.num_workers,
                        " workers are to be on one node, and at most ",
                        request.ranks_per_node_max, " of a job ever are");
  }
  if (OnOneNode(request) && !MayShareANode(request)) {
    return absl::StrCat(
        "STRICT_SPREAD puts each worker on a node of its own, and all of them "
        "are to be on one host");
  }
  return PerNodeNonsense(request);
}

}  // namespace

bool InOneDomain(const GangRequest& request) {
  return request.topology.required && request.topology.level != kHostLevel;
}

NearestRoom FindNearestRoom(const Scope& scope, const GangRequest& request,
                            Fit& fit, bool idle) {
  if (!InOneDomain(request))
    return {RoomIn(scope.nodes(), fit, idle), std::nullopt};
  NearestRoom nearest;
  for (const auto& [value, nodes] : scope.DomainsOf(request.topology.level)) {
    const Room room = RoomIn(nodes, fit, idle);
    if (!nearest.domain.has_value() ||
        room.MissingFor(request) < nearest.room.MissingFor(request)) {
      nearest = {room, value};
    }
  }
  return nearest;
}

std::optional<Refusal> RefuseNonsense(const GangRequest& request) {
  std::string nonsense = Nonsense(request);
  if (nonsense.empty()) return std::nullopt;
  return Refusal{.reason = std::move(nonsense),
                 .never_fits_known_nodes = true,
                 .missing = std::numeric_limits<int64_t>::max()};
}

Refusal Refuse(const Scope& scope, const GangRequest& asked) {
  Refusal refusal{.reason = absl::StrCat("needs ", Describe(asked)),
                  .never_fits_known_nodes = false,
                  .missing = std::max(asked.num_workers, 1)};
  if (scope.IsEmpty()) {
    refusal.never_fits_known_nodes = true;
    absl::StrAppend(&refusal.reason, "; no node is registered");
    return refusal;
  }
  GangRequest request = asked;
  if (OnOneNode(asked)) request.strategy = v1::PLACEMENT_STRATEGY_STRICT_PACK;
  Fit fit(request);
  const NearestRoom now = FindNearestRoom(scope, request, fit, /*idle=*/false);
  const NearestRoom idle = FindNearestRoom(scope, request, fit, /*idle=*/true);
  refusal.never_fits_known_nodes = !idle.room.Holds(request);
  refusal.missing = std::max<int64_t>(now.room.MissingFor(request), 1);
  Census census(request);
  for (const auto& [form, bucket] : scope.nodes().buckets()) {
    census.Add(*form, bucket);
  }
  absl::StrAppend(&refusal.reason, "; ", DescribeRoom(now, request), " now",
                  census.ToText());
  if (refusal.never_fits_known_nodes) {
    absl::StrAppend(&refusal.reason,
                    "; never fits these nodes: when idle they have ",
                    DescribeRoom(idle, request));
  }
  return refusal;
}

}  // namespace cohort::head
