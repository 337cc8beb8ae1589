#include "head/explain/holdings.h"

#include <algorithm>

#include "head/placement/candidates.h"
#include "head/placement/refusal.h"

namespace cohort::head {
namespace {

// Amounts alone say so: on devices it may be less.
int64_t GainOn(const NodeForm& form, const ResourceSet& freed,
               const GangRequest& request) {
  int64_t after = request.num_workers;
  for (const auto& [name, amount] : request.per_worker) {
    const Amount all =
        form.available.Get(name) + freed.Get(name) - form.overdrawn.Get(name);
    after = std::min(after, std::max<int64_t>(all.ten_thousandths(), 0) /
                                amount.ten_thousandths());
  }
  if (OnOneNode(request)) {
    return after >= request.num_workers ? request.num_workers : 0;
  }
  const int64_t now = Capacity(form, request.per_worker, request.num_workers);
  if (request.strategy == PlacementStrategy::kStrictSpread) {
    return now == 0 && after > 0 ? 1 : 0;
  }
  return std::max<int64_t>(after - now, 0);
}

ResourceSet HeldBy(const AttemptRecord& attempt) {
  ResourceSet held;
  for (const AttemptPart& part : attempt.parts) {
    if (!IsOver(part)) held.Add(part.resources);
  }
  return held;
}

void AddGhostsOn(const NodeId& node, const NodeTable& nodes,
                 Holdings& holdings) {
  for (const auto& [job, held] : nodes.HauntedOn(node)) {
    Haunting& haunting = holdings.ghosts[job];
    haunting.nodes.insert(node);
    haunting.resources.Add(held);
  }
}

}  // namespace

bool LabelsFit(const NodeSnapshot& node, const GangRequest& request) {
  return LabelsAllow(node.labels, request.selector) &&
         NameAllows(node.name, request.selector) &&
         (!InOneDomain(request) ||
          node.labels.contains(request.topology.level));
}

Holdings FindHoldings(const NodeTable& nodes, const AttemptTable& attempts,
                      const GangRequest& request, int64_t leases_max) {
  Holdings holdings;
  int64_t looked_at = 0;
  for (const auto& [form, bucket] : nodes.index().all().buckets()) {
    if (!FormAllowsIdle(*form, request)) continue;
    for (const auto& [id, node] : bucket.nodes) {
      if (!LabelsFit(*node, request)) continue;
      if (form->gate != NodeGate::kOpen) {
        for (const auto& [attempt, held] : nodes.HeldOn(id)) {
          if (++looked_at > leases_max) break;
          holdings.closed[attempts.Find(attempt)->job].insert(attempt);
        }
        continue;
      }
      const size_t ghosts = nodes.GhostCountOn(id);
      if (ghosts > 0) {
        looked_at += static_cast<int64_t>(ghosts);
        if (looked_at > leases_max) break;
        AddGhostsOn(id, nodes, holdings);
      }
      NodeLoad load{.node = node, .jobs = {}};
      ResourceSet all;
      for (const auto& [attempt, held] : nodes.HeldOn(id)) {
        if (++looked_at > leases_max) break;
        const AttemptRecord& record = *attempts.Find(attempt);
        const JobId& job = record.job;
        const auto [place, fresh] = holdings.jobs.try_emplace(job);
        Holding& holding = place->second;
        if (fresh) holding.everywhere = HeldBy(record);
        holding.nodes.emplace_back(id, attempt);
        holding.resources.Add(held);
        holding.gain += GainOn(*form, held, request);
        load.jobs.push_back(job);
        all.Add(held);
      }
      if (load.jobs.empty()) continue;
      load.gain = GainOn(*form, all, request);
      holdings.nodes.push_back(std::move(load));
    }
    if (looked_at > leases_max) break;
  }
  holdings.complete = looked_at <= leases_max;
  std::sort(holdings.nodes.begin(), holdings.nodes.end(),
            [](const NodeLoad& a, const NodeLoad& b) {
              return a.node->id < b.node->id;
            });
  return holdings;
}

}  // namespace cohort::head
