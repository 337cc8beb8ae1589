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
  if (request.strategy == v1::PLACEMENT_STRATEGY_STRICT_SPREAD) {
    return now == 0 && after > 0 ? 1 : 0;
  }
  return std::max<int64_t>(after - now, 0);
}

ResourceSet HeldBy(const AttemptRecord& attempt, const NodeTable& nodes) {
  ResourceSet held;
  for (const Place& place : attempt.places) {
    const auto all = nodes.HeldOn(place.node);
    const auto own = all.find(attempt.id);
    if (own != all.end()) held.Add(own->second);
  }
  return held;
}

void AddOrphansOn(const NodeId& node, const NodeTable& nodes,
                  Holdings& holdings) {
  for (const auto& [job, held] : nodes.HeldByOrphansOn(node)) {
    Holding& holding = holdings.orphans[job];
    holding.nodes.emplace_back(node, AttemptId());
    holding.resources.Add(held);
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
    if (form->gate != NodeGate::kOpen || !FormAllowsIdle(*form, request)) {
      continue;
    }
    for (const auto& [id, node] : bucket.nodes) {
      if (!LabelsFit(*node, request)) continue;
      const size_t orphans = nodes.OrphanCountOn(id);
      if (orphans > 0) {
        looked_at += static_cast<int64_t>(orphans);
        if (looked_at > leases_max) break;
        AddOrphansOn(id, nodes, holdings);
      }
      for (const auto& [attempt, held] : nodes.HeldOn(id)) {
        if (++looked_at > leases_max) break;
        const AttemptRecord& record = *attempts.Find(attempt);
        const JobId& job = record.job;
        const auto [place, fresh] = holdings.jobs.try_emplace(job);
        Holding& holding = place->second;
        if (fresh) holding.everywhere = HeldBy(record, nodes);
        holding.nodes.emplace_back(id, attempt);
        holding.resources.Add(held);
        holding.gain += GainOn(*form, held, request);
      }
    }
    if (looked_at > leases_max) break;
  }
  holdings.complete = looked_at <= leases_max;
  return holdings;
}

}  // namespace cohort::head
