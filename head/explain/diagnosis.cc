#include "head/explain/diagnosis.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"

#include "head/placement/candidates.h"
#include "head/placement/placement.h"
#include "head/placement/refusal.h"
#include "rpc/enum_text.h"

namespace cohort::head {
namespace {

// ---- what keeps the nodes ----

// The most reasons that are listed one by one why nodes are not ready, and why
// devices are fenced.
constexpr size_t kWhyToldMax = 4;

// Of each Misfit::By, in order.
constexpr const char* kMisfitNames[] = {"state",    "taint",    "accelerator",
                                        "label",    "topology", "device",
                                        "resource", "domain",   "spread"};

// As WhyNodeCannot, but for all workers where they must share a node.
std::vector<Misfit> WhyCannot(const NodeSnapshot& node, const NodeForm& form,
                              const GangRequest& request) {
  std::vector<Misfit> misfits = WhyNodeCannot(node, request);
  const bool open = form.gate == NodeGate::kOpen;
  if (open && !OnOneNode(request)) return misfits;
  // A node that takes no new work shows nothing as free, which is not what
  // keeps it.
  std::erase_if(misfits, [open](const Misfit& misfit) {
    return misfit.by == Misfit::By::kResource ||
           (open && misfit.by == Misfit::By::kDevice);
  });
  if (!open) return misfits;
  const bool by_fences =
      KeptByFences(form, request.per_worker, request.num_workers);
  if (by_fences) {
    misfits.push_back({.by = Misfit::By::kDevice, .what = "", .short_by = {}});
  }
  for (const ResourceSet::Entry& need : request.per_worker) {
    if (CapacityBy(form, need) >= request.num_workers) continue;
    if (by_fences && need.first == kGpu) continue;
    misfits.push_back({.by = Misfit::By::kResource,
                       .what = need.first,
                       .short_by = LackFor(form, need, request.num_workers)});
  }
  return misfits;
}

// Of several resources the one of which the most is missing for what is asked.
const Misfit& Foremost(const std::vector<Misfit>& misfits,
                       const ResourceSet& per_worker) {
  const Misfit* foremost = &misfits.front();
  if (foremost->by != Misfit::By::kResource) return *foremost;
  const auto share = [&per_worker](const Misfit& misfit) {
    return misfit.short_by.ToDouble() / per_worker.Get(misfit.what).ToDouble();
  };
  for (const Misfit& misfit : misfits) {
    if (share(misfit) > share(*foremost)) foremost = &misfit;
  }
  return *foremost;
}

// What nodes lack, and how many of them: the closest first, by its name.
using Shortages = std::map<std::pair<Amount, std::string>, int64_t>;

Amount Median(const Shortages& shortages) {
  int64_t all = 0;
  for (const auto& [lack, count] : shortages) all += count;
  int64_t before = 0;
  for (const auto& [lack, count] : shortages) {
    before += count;
    if (2 * before >= all) return lack.first;
  }
  return Amount();
}

class Counter {
 public:
  Counter(const NodeTable& nodes, const GangRequest& request,
          v1::Blocker& blocker)
      : nodes_(nodes), request_(request), blocker_(blocker) {
    // One node holds all of it or none: what it lacks says it.
    if (OnOneNode(request) || RefuseNonsense(request).has_value()) return;
    Fit fit(request);
    const Scope scope(nodes.index(), request.selector);
    nearest_ = FindNearestRoom(scope, request, fit, /*idle=*/false);
    if (nearest_->domain.has_value()) {
      domain_ = absl::StrCat(request.topology.level, "=", *nearest_->domain);
    }
  }

  void AddBucket(const NodeForm& form, const NodeGroup::Bucket& bucket) {
    // Nodes of one form and label set are alike, unless their names or what
    // still runs on them matter.
    const bool apart = form.gate != NodeGate::kOpen || !form.fenced.empty() ||
                       SelectsByName(request_.selector);
    for (const auto& [labels, alike] : bucket.by_labels) {
      if (!apart) {
        Add(form, *alike.begin()->second, static_cast<int64_t>(alike.size()));
        continue;
      }
      for (const auto& [id, node] : alike) Add(form, *node, 1);
    }
  }

  void AddDead(int64_t nodes) {
    if (nodes == 0) return;
    blocker_.set_nodes(blocker_.nodes() + nodes);
    Count(Misfit::By::kState, "DEAD", nodes);
  }

  void Finish() && {
    AddTogether();
    for (const auto& [key, failure] : failures_) {
      v1::NodeFailure& out = *blocker_.add_failures();
      out.set_by(kMisfitNames[static_cast<size_t>(key.first)]);
      out.set_what(key.second);
      out.set_nodes(failure.nodes);
      out.set_nodes_in_all(failure.nodes_in_all);
      // Neither of dead ones nor where it is not known.
      if (failure.since != absl::InfiniteFuture() &&
          failure.since != absl::InfinitePast()) {
        out.set_since_us(absl::ToUnixMicros(failure.since));
      }
      const Shortages& of = failure.nodes > 0 ? failure.counted : failure.all;
      if (of.empty()) continue;
      out.set_short_least(of.begin()->first.first.ten_thousandths());
      out.set_short_median(Median(of).ten_thousandths());
      out.set_closest(of.begin()->first.second);
    }
    std::stable_sort(blocker_.mutable_failures()->begin(),
                     blocker_.mutable_failures()->end(),
                     [](const v1::NodeFailure& a, const v1::NodeFailure& b) {
                       return a.nodes() != b.nodes()
                                  ? a.nodes() > b.nodes()
                                  : a.nodes_in_all() > b.nodes_in_all();
                     });
  }

 private:
  struct Failure {
    int64_t nodes = 0;
    int64_t nodes_in_all = 0;
    absl::Time since = absl::InfiniteFuture();
    Shortages counted;  // of `nodes`
    Shortages all;
  };

  Failure& Count(Misfit::By by, const std::string& what, int64_t nodes) {
    Failure& failure = failures_[{by, what}];
    failure.nodes += nodes;
    failure.nodes_in_all += nodes;
    return failure;
  }

  // "NOT_READY: no space left on device".
  std::string WithReason(const std::string& name, const std::string& why) {
    std::set<std::string>& told = told_[name];
    const bool tell = told.contains(why) ||
                      (told.size() < kWhyToldMax && told.insert(why).second);
    return tell ? absl::StrCat(name, ": ", why) : name;
  }

  // A node that takes no new work, as people see it.
  std::string StateOf(const NodeSnapshot& node) {
    const NodeState state = nodes_.ShownState(node.id);
    const std::string name = EnumText(state);
    if (state != v1::NODE_STATE_NOT_READY) return name;
    return WithReason(name, nodes_.NotReadyBecause(node.id));
  }

  // The devices that are fenced, by the first of them.
  std::string FenceOf(const NodeSnapshot& node) {
    for (const Device& device : nodes_.Find(node.id)->node.devices()) {
      if (device.state() != v1::DEVICE_STATE_FENCED) continue;
      return WithReason("FENCED", device.reason());
    }
    return "FENCED";
  }

  bool IsSpread() const {
    return request_.strategy == v1::PLACEMENT_STRATEGY_STRICT_SPREAD;
  }

  // What keeps the gang though nodes have room for some of it.
  void AddTogether() {
    if (!nearest_.has_value()) return;
    const auto add = [this](Misfit::By by, const std::string& what) {
      Failure& failure = failures_[{by, what}];
      const int64_t missing = nearest_->room.MissingFor(request_);
      failure.nodes_in_all += blocker_.nodes_that_fit();
      (failure.nodes > 0 ? failure.counted
                         : failure.all)[{Amount::FromUnits(missing), ""}] += 1;
    };
    if (domain_.has_value()) add(Misfit::By::kDomain, *domain_);
    if (IsSpread()) add(Misfit::By::kSpread, "different nodes");
  }

  // One that has room.
  void AddRoom(const NodeForm& form, const NodeSnapshot& node, int64_t count) {
    if (domain_.has_value() &&
        node.labels.at(request_.topology.level) != *nearest_->domain) {
      Count(Misfit::By::kDomain, *domain_, count);
      return;
    }
    const int64_t room = IsSpread() ? 1 : Capacity(form, request_);
    blocker_.set_nodes_that_fit(blocker_.nodes_that_fit() + count);
    blocker_.set_workers_that_fit(
        OnOneNode(request_) ? std::max(blocker_.workers_that_fit(), room)
                            : blocker_.workers_that_fit() + count * room);
  }

  void Add(const NodeForm& form, const NodeSnapshot& node, int64_t count) {
    blocker_.set_nodes(blocker_.nodes() + count);
    std::vector<Misfit> misfits = WhyCannot(node, form, request_);
    if (misfits.empty()) return AddRoom(form, node, count);
    for (Misfit& misfit : misfits) {
      if (misfit.by == Misfit::By::kState) misfit.what = StateOf(node);
      if (misfit.by == Misfit::By::kDevice) misfit.what = FenceOf(node);
    }
    const Misfit* const foremost = &Foremost(misfits, request_.per_worker);
    for (const Misfit& misfit : misfits) {
      Failure& failure = failures_[{misfit.by, misfit.what}];
      failure.nodes_in_all += count;
      if (&misfit == foremost) failure.nodes += count;
      if (misfit.by == Misfit::By::kState) {
        failure.since = std::min(failure.since, nodes_.ShownSince(node.id));
      }
      if (misfit.by != Misfit::By::kResource) continue;
      const std::pair<Amount, std::string> lack(misfit.short_by, node.name);
      failure.all[lack] += count;
      if (&misfit == foremost) failure.counted[lack] += count;
    }
  }

  const NodeTable& nodes_;
  const GangRequest& request_;
  v1::Blocker& blocker_;
  // Of a request that some nodes may hold together.
  std::optional<NearestRoom> nearest_;
  std::optional<std::string> domain_;  // "rack=r1": all of it must be in one
  std::map<std::string, std::set<std::string>> told_;  // why, by state
  std::map<std::pair<Misfit::By, std::string>, Failure> failures_;
};

void CountNodes(const NodeTable& nodes, const GangRequest& request,
                v1::Blocker& blocker) {
  Counter counter(nodes, request, blocker);
  for (const auto& [form, bucket] : nodes.index().all().buckets()) {
    counter.AddBucket(*form, bucket);
  }
  counter.AddDead(nodes.CountOf(v1::NODE_STATE_DEAD));
  std::move(counter).Finish();
}

// ---- who holds what is short ----

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
  const int64_t now = Capacity(form, request);
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

// Looks at `leases_max` leases at most.
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
        holding.everywhere.Add(HeldBy(record, nodes));
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

bool LabelsFit(const NodeSnapshot& node, const GangRequest& request) {
  return LabelsAllow(node.labels, request.selector) &&
         HostAllows(node, request.selector) &&
         (!InOneDomain(request) ||
          node.labels.contains(request.topology.level));
}

Diagnosis Diagnose(const NodeTable& nodes, const AttemptTable& attempts,
                   const GangRequest& request, const DiagnosisLimits& limits,
                   NodeTrial* trial, const JobId& own) {
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
  Holdings holdings = FindHoldings(nodes, attempts, request, limits.leases_max);
  for (const std::string& resource : ShortResources(blocker, request)) {
    AddHolders(resource, holdings, limits.holders_max, blocker);
  }
  blocker.set_holders_complete(holdings.complete);
  if (trial != nullptr) {
    holdings.jobs.erase(own);
    diagnosis.remedies =
        FindRemedies(nodes, holdings, request, limits.remedies, *trial);
  }
  return diagnosis;
}

}  // namespace cohort::head
