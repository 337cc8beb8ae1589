#include "head/explain/diagnosis.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "head/explain/census.h"
#include "head/explain/holdings.h"
#include "head/placement/placement.h"
#include "head/store/enum_text.h"

namespace cohort::head {
namespace {

// Those that keep a node from it; all that it asks for when each node has room
// for some, but all together not for the gang.
std::set<std::string> ShortResources(const v1::Blocker& blocker,
                                     const GangRequest& request) {
  std::set<std::string> names;
  for (const v1::NodeFailure& failure : blocker.failures()) {
    if (failure.by() == "resource") names.insert(failure.what());
  }
  if (!names.empty()) return names;
  for (const auto& [name, amount] : request.per_worker) names.insert(name);
  return names;
}

// The `most` that hold most of it.
void AddHolders(const std::string& resource, const Holdings& holdings,
                size_t most, v1::Blocker& blocker) {
  std::vector<std::pair<Amount, JobId>> holders;
  for (const auto& [job, holding] : holdings.jobs) {
    const Amount amount = holding.resources.Get(resource);
    if (!amount.IsZero()) holders.emplace_back(amount, job);
  }
  const size_t kept = std::min(most, holders.size());
  std::partial_sort(
      holders.begin(), holders.begin() + static_cast<ptrdiff_t>(kept),
      holders.end(), [](const auto& a, const auto& b) {
        return a.first != b.first ? a.first > b.first : a.second < b.second;
      });
  holders.resize(kept);
  for (const auto& [amount, job] : holders) {
    v1::Holder& holder = *blocker.add_holders();
    holder.set_resource(resource);
    holder.set_job_id(job.bytes());
    holder.set_amount(amount.ten_thousandths());
    holder.set_nodes(static_cast<int64_t>(holdings.jobs.at(job).nodes.size()));
  }
}

}  // namespace

Diagnosis Diagnose(const NodeTable& nodes, const AttemptTable& attempts,
                   const GangRequest& request, const DiagnosisLimits& limits) {
  Diagnosis diagnosis;
  Placement placement = PlaceGang(nodes.index(), request);
  const auto* const refusal = std::get_if<Refusal>(&placement);
  diagnosis.fits = refusal == nullptr;
  if (diagnosis.fits) return diagnosis;
  v1::Blocker& blocker = diagnosis.blocker;
  blocker.set_kind(LowerEnumText(v1::WAIT_KIND_RESOURCES));
  blocker.set_text(refusal->reason);
  blocker.set_shape(Describe(request));
  blocker.set_num_workers(request.num_workers);
  blocker.set_never_fits(refusal->never_fits_known_nodes);
  CountNodes(nodes, request, blocker);
  const Holdings holdings =
      FindHoldings(nodes, attempts, request, limits.leases_max);
  for (const std::string& resource : ShortResources(blocker, request)) {
    AddHolders(resource, holdings, limits.holders_max, blocker);
  }
  blocker.set_holders_complete(holdings.complete);
  if (limits.find_remedies) {
    diagnosis.remedies =
        FindRemedies(nodes, holdings, request, limits.remedies);
  }
  return diagnosis;
}

}  // namespace cohort::head
