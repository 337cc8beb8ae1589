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

ResourceSet HeldBy(const AttemptRecord& attempt) {
  ResourceSet held;
  for (const AttemptPart& part : attempt.parts) {
    if (!IsOver(part)) held.Add(part.resources);
  }
  return held;
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
  int64_t left = leases_max;
  const auto hold = [&](const JobId& job, const NodeId& node,
                        const ResourceSet& held) -> Holding& {
    Holding& holding = holdings.jobs[job];
    holding.nodes.insert(node);
    holding.resources.Add(held);
    return holding;
  };
  const auto add_node = [&](const NodeForm& form, const NodeId& id) {
    left -= static_cast<int64_t>(nodes.OrphanCountOn(id));
    if (left < 0) return;
    for (const auto& [job, held] : nodes.HeldByOrphansOn(id)) {
      hold(job, id, held);
    }
    for (const auto& [attempt, held] : nodes.HeldOn(id)) {
      if (--left < 0) return;
      const AttemptRecord& record = *attempts.Find(attempt);
      Holding& holding = hold(record.job, id, held);
      if (holding.attempts.insert(attempt).second) {
        holding.everywhere.Add(HeldBy(record));
      }
      holding.gain += GainOn(form, held, request);
    }
  };
  for (const auto& [form, bucket] : nodes.index().all().buckets()) {
    if (form->gate != NodeGate::kOpen || !FormAllowsIdle(*form, request)) {
      continue;
    }
    for (const auto& [id, node] : bucket.nodes) {
      if (left >= 0 && LabelsFit(*node, request)) add_node(*form, id);
    }
  }
  holdings.complete = left >= 0;
  return holdings;
}

}  // namespace cohort::head
