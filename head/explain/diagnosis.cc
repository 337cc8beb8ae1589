#include "head/explain/diagnosis.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include "head/explain/holdings.h"
#include "head/placement/placement.h"

namespace cohort::head {
namespace {

// Those that keep a node from it; all that it asks for when each node has room
// for some, but all together not for the gang.
std::set<std::string> ShortResources(const Census& census,
                                     const GangRequest& request) {
  std::set<std::string> names;
  for (const NodeFailure& failure : census.failures) {
    if (failure.by == Misfit::By::kResource) names.insert(failure.what);
  }
  if (!names.empty()) return names;
  for (const auto& [name, amount] : request.per_worker) names.insert(name);
  return names;
}

// What jobs hold by leases, and where nodes have orphans of them.
std::vector<Holder> HoldersOf(const std::string& resource,
                              const Holdings& holdings, size_t most) {
  std::map<JobId, Amount> amounts;
  std::map<JobId, std::set<NodeId>> nodes;
  for (const auto* by_job : {&holdings.jobs, &holdings.orphans}) {
    for (const auto& [job, holding] : *by_job) {
      amounts[job] += holding.resources.Get(resource);
      for (const auto& [node, attempt] : holding.nodes) nodes[job].insert(node);
    }
  }
  std::vector<Holder> holders;
  for (const auto& [job, amount] : amounts) {
    holders.push_back({.resource = resource,
                       .job = job,
                       .amount = amount,
                       .nodes = static_cast<int64_t>(nodes[job].size())});
  }
  std::erase_if(holders, [](const Holder& h) { return h.amount.IsZero(); });
  const auto more = [](const Holder& a, const Holder& b) {
    return a.amount != b.amount ? a.amount > b.amount : a.job < b.job;
  };
  const size_t kept = std::min(most, holders.size());
  std::partial_sort(holders.begin(),
                    holders.begin() + static_cast<ptrdiff_t>(kept),
                    holders.end(), more);
  holders.resize(kept);
  return holders;
}

Diagnosis Look(const NodeTable& nodes, const GangRequest& request) {
  Diagnosis diagnosis;
  diagnosis.request = request;
  Placement placement = PlaceGang(nodes.index(), request);
  if (std::holds_alternative<Plan>(placement)) {
    diagnosis.fits = true;
    return diagnosis;
  }
  Refusal& refusal = std::get<Refusal>(placement);
  diagnosis.reason = std::move(refusal.reason);
  diagnosis.never_fits = refusal.never_fits_known_nodes;
  diagnosis.census = CountNodes(nodes, request);
  return diagnosis;
}

void AddHolders(const Holdings& holdings, size_t most, Diagnosis& diagnosis) {
  for (const std::string& resource :
       ShortResources(diagnosis.census, diagnosis.request)) {
    for (Holder& holder : HoldersOf(resource, holdings, most)) {
      diagnosis.holders.push_back(std::move(holder));
    }
  }
  diagnosis.holders_complete = holdings.complete;
}

}  // namespace

Diagnosis Diagnose(const NodeTable& nodes, const AttemptTable& attempts,
                   const GangRequest& request, DiagnosisLimits limits) {
  Diagnosis diagnosis = Look(nodes, request);
  if (diagnosis.fits) return diagnosis;
  AddHolders(FindHoldings(nodes, attempts, request, limits.leases_max),
             limits.holders_max, diagnosis);
  return diagnosis;
}

FullDiagnosis DiagnoseFully(const NodeTable& nodes,
                            const AttemptTable& attempts,
                            const GangRequest& request,
                            DiagnosisLimits limits) {
  FullDiagnosis full{.diagnosis = Look(nodes, request), .remedies = {}};
  if (full.diagnosis.fits) return full;
  const Holdings holdings =
      FindHoldings(nodes, attempts, request, limits.leases_max);
  AddHolders(holdings, limits.holders_max, full.diagnosis);
  full.remedies = FindRemedies(nodes, holdings, request, limits.remedies);
  return full;
}

}  // namespace cohort::head
