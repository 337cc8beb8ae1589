#include "bench/planner_load.h"

#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "head/testing/messages.h"

namespace cohort::bench {

using head::GangRequest;
using head::NodeRecord;
using head::Placement;
using head::Plan;
using head::PlannedPart;
using head::PlannedRank;

NodeRecord GpuNode(const NodeId& id, int number) {
  NodeRecord node;
  node.id = id;
  node.node.set_name(absl::StrCat("node-", number));
  head::SetResources(node.node, *ParseResources("CPU=96,GPU=8,memory=1TiB"));
  for (int gpu = 0; gpu < 8; ++gpu) {
    head::AddDevice(node.node, {.id = absl::StrCat("GPU-", number, "-", gpu),
                                .kind = "gpu",
                                .model = "NVIDIA H100 80GB HBM3"});
  }
  head::SetLabels(node.node, {{"rack", absl::StrCat("r", number / 16)}});
  return node;
}

GangRequest NextGang(Random& random) {
  constexpr int kMembers[] = {1, 1, 1, 1, 1, 1, 1, 1,  2,  2,
                              4, 4, 4, 8, 8, 8, 8, 16, 16, 64};
  GangRequest request;
  request.num_workers = kMembers[random.Below(20)];
  request.per_worker = *ParseResources("CPU=8,GPU=1,memory=64GiB");
  return request;
}

Held Hold(head::NodeTable& nodes, const AttemptId& attempt,
          const ResourceSet& each, const Plan& plan) {
  Held all;
  for (const PlannedPart& part : plan.parts) {
    head::NodeTable::Held held{.each = each, .processes = {}};
    for (const PlannedRank& rank : part.ranks) {
      const head::Incarnation process{rank.rank, 1};
      held.processes.emplace(process, rank.devices);
      all.emplace_back(part.node, process);
    }
    nodes.Hold(attempt, part.node, std::move(held));
  }
  return all;
}

void Release(head::NodeTable& nodes, const AttemptId& attempt,
             const Held& held) {
  for (const auto& [node, process] : held) {
    nodes.Release(attempt, node, process);
  }
}

PlannerLoad::PlannerLoad(int nodes, uint64_t seed)
    : random_(seed), nodes_count_(nodes) {
  for (int n = 0; n < nodes; ++n) {
    const NodeId id = NodeId::New(random_);
    nodes_.Put(GpuNode(id, n));
    nodes_.Offer(id);
  }
  nodes_.TakeGains();
}

void PlannerLoad::FillTo(double share) {
  const auto enough = static_cast<int64_t>(share * 8 * nodes_count_);
  while (held_ < enough && Place(NextGang(random_)) > 0) continue;
}

int64_t PlannerLoad::Churn(int gangs) {
  int64_t members = 0;
  const int64_t full = held_;
  for (int i = 0; i < gangs; ++i) {
    const GangRequest request = NextGang(random_);
    while (held_ + request.num_workers > full) EndOne();
    int64_t placed = Place(request);
    while (placed == 0) {
      EndOne();
      placed = Place(request);
    }
    members += placed;
  }
  return members;
}

int64_t PlannerLoad::Place(const GangRequest& request) {
  Placement placement = head::PlaceGang(nodes_.index(), request);
  auto* const plan = std::get_if<Plan>(&placement);
  if (plan == nullptr) return 0;
  const AttemptId attempt = AttemptId::New(random_);
  running_.push_back({.attempt = attempt,
                      .held = Hold(nodes_, attempt, request.per_worker, *plan),
                      .members = request.num_workers});
  held_ += request.num_workers;
  if (remembers_) plans_.push_back(std::move(*plan));
  return request.num_workers;
}

void PlannerLoad::EndOne() {
  COHORT_CHECK(!running_.empty());
  std::swap(running_[random_.Below(running_.size())], running_.back());
  const Running& ended = running_.back();
  Release(nodes_, ended.attempt, ended.held);
  held_ -= ended.members;
  running_.pop_back();
  // As the waiting line does after each release.
  nodes_.TakeGains();
}

}  // namespace cohort::bench
