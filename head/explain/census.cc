#include "head/explain/census.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

#include "head/placement/candidates.h"
#include "head/placement/refusal.h"

namespace cohort::head {
namespace {

// As many reasons of nodes that are unfit are told apart, and as many of
// devices that are fenced.
constexpr size_t kWhyToldMax = 4;

// As WhyNodeCannot, but for all workers where they must share a node.
std::vector<Misfit> WhyCannot(const NodeSnapshot& node, const NodeForm& form,
                              const GangRequest& request) {
  std::vector<Misfit> misfits = WhyNodeCannot(node, request);
  const bool open = form.gate == NodeGate::kOpen;
  if (open && !OnOneNode(request)) return misfits;
  // A node that takes no new work shows nothing as free, which is not what
  // keeps it.
  misfits.erase(std::remove_if(misfits.begin(), misfits.end(),
                               [](const Misfit& misfit) {
                                 return misfit.by == Misfit::By::kResource;
                               }),
                misfits.end());
  if (!open) return misfits;
  const auto by_device = [](const Misfit& misfit) {
    return misfit.by == Misfit::By::kDevice;
  };
  misfits.erase(std::remove_if(misfits.begin(), misfits.end(), by_device),
                misfits.end());
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

class Counter {
 public:
  Counter(const NodeTable& nodes, const GangRequest& request)
      : nodes_(nodes), request_(request) {
    // One node holds all of it or none: what it lacks says it.
    if (OnOneNode(request) || RefuseNonsense(request).has_value()) return;
    Fit fit(request);
    const Scope scope(nodes.index(), request.selector);
    nearest_ = FindNearestRoom(scope, request, fit, /*idle=*/false);
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
    census_.nodes += nodes;
    Failure& failure = failures_[{Misfit::By::kState, "DEAD"}];
    failure.nodes += nodes;
    failure.nodes_in_all += nodes;
  }

  Census Finish() && {
    AddTogether();
    for (const auto& [key, failure] : failures_) {
      NodeFailure& out = census_.failures.emplace_back();
      out.by = key.first;
      out.what = key.second;
      out.nodes = failure.nodes;
      out.nodes_in_all = failure.nodes_in_all;
      out.since = failure.since;
      const Shortages& of = failure.nodes > 0 ? failure.counted : failure.all;
      if (of.nodes.empty()) continue;
      out.short_least = of.nodes.begin()->first;
      out.short_median = of.Median();
      out.closest = of.closest;
    }
    std::stable_sort(census_.failures.begin(), census_.failures.end(),
                     [](const NodeFailure& a, const NodeFailure& b) {
                       return std::tie(b.nodes, b.nodes_in_all) <
                              std::tie(a.nodes, a.nodes_in_all);
                     });
    return std::move(census_);
  }

 private:
  // What nodes lack of a resource.
  struct Shortages {
    std::map<Amount, int64_t> nodes;  // how many lack how much
    std::string closest;

    void Add(Amount lack, const std::string& name, int64_t count) {
      const bool first = nodes.empty();
      const Amount least = first ? Amount() : nodes.begin()->first;
      if (first || std::tie(lack, name) < std::tie(least, closest)) {
        closest = name;
      }
      nodes[lack] += count;
    }

    Amount Median() const {
      int64_t all = 0;
      for (const auto& [lack, count] : nodes) all += count;
      int64_t before = 0;
      for (const auto& [lack, count] : nodes) {
        before += count;
        if (2 * before >= all) return lack;
      }
      return Amount();
    }
  };
  struct Failure {
    int64_t nodes = 0;
    int64_t nodes_in_all = 0;
    absl::Time since = absl::InfiniteFuture();
    Shortages counted;  // of `nodes`
    Shortages all;
  };

  // A node that takes no new work, as people see it.
  std::string StateOf(const NodeSnapshot& node) {
    const ShownNodeState state = nodes_.ShownState(node.id);
    const std::string name = ShownNodeStateName(state);
    if (state != ShownNodeState::kUnfit) return name;
    return WithReason(name, nodes_.UnfitBecause(node.id), unfit_told_);
  }

  // The devices that are fenced, by the first of them.
  std::string FenceOf(const NodeSnapshot& node) {
    for (const Device& device : nodes_.Find(node.id)->devices) {
      if (device.state != v1::DEVICE_STATE_FENCED) continue;
      return WithReason("FENCED", device.reason, fences_told_);
    }
    return "FENCED";
  }

  static std::string WithReason(const std::string& name, const std::string& why,
                                std::set<std::string>& told) {
    const bool tell = told.contains(why) ||
                      (told.size() < kWhyToldMax && told.insert(why).second);
    return tell ? absl::StrCat(name, ": ", why) : name;
  }

  // "rack=r1"; nothing when all of it may be anywhere.
  std::optional<std::string> DomainText() const {
    if (!nearest_.has_value() || !nearest_->domain.has_value()) {
      return std::nullopt;
    }
    return absl::StrCat(request_.topology.level, "=", *nearest_->domain);
  }

  // What keeps the gang though nodes have room for some of it.
  void AddTogether() {
    if (!nearest_.has_value()) return;
    const auto add = [this](Misfit::By by, const std::string& what) {
      Failure& failure = failures_[{by, what}];
      const int64_t missing = nearest_->room.MissingFor(request_);
      const Amount lack = Amount::FromUnits(missing);
      failure.nodes_in_all += census_.nodes_that_fit;
      (failure.nodes > 0 ? failure.counted : failure.all).Add(lack, "", 1);
    };
    const std::optional<std::string> domain = DomainText();
    if (domain.has_value()) add(Misfit::By::kDomain, *domain);
    if (request_.strategy == v1::PLACEMENT_STRATEGY_STRICT_SPREAD) {
      add(Misfit::By::kSpread, "different nodes");
    }
  }

  // One that has room.
  void AddRoom(const NodeForm& form, const NodeSnapshot& node, int64_t count) {
    const std::optional<std::string> domain = DomainText();
    if (domain.has_value() &&
        node.labels.at(request_.topology.level) != *nearest_->domain) {
      Failure& failure = failures_[{Misfit::By::kDomain, *domain}];
      failure.nodes += count;
      failure.nodes_in_all += count;
      return;
    }
    const bool alone =
        request_.strategy == v1::PLACEMENT_STRATEGY_STRICT_SPREAD;
    const int64_t room =
        Capacity(form, request_.per_worker, alone ? 1 : request_.num_workers);
    census_.nodes_that_fit += count;
    census_.workers_that_fit = OnOneNode(request_)
                                   ? std::max(census_.workers_that_fit, room)
                                   : census_.workers_that_fit + count * room;
  }

  void Add(const NodeForm& form, const NodeSnapshot& node, int64_t count) {
    census_.nodes += count;
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
      if (misfit.by == Misfit::By::kState) {
        failure.since = std::min(failure.since, nodes_.ShownSince(node.id));
      }
      const bool is_lack = misfit.by == Misfit::By::kResource;
      if (is_lack) failure.all.Add(misfit.short_by, node.name, count);
      if (&misfit != foremost) continue;
      failure.nodes += count;
      if (is_lack) failure.counted.Add(misfit.short_by, node.name, count);
    }
  }

  const NodeTable& nodes_;
  const GangRequest& request_;
  // Of a request that some nodes may hold together.
  std::optional<NearestRoom> nearest_;
  Census census_;
  std::set<std::string> unfit_told_;   // why nodes are
  std::set<std::string> fences_told_;  // why devices are
  std::map<std::pair<Misfit::By, std::string>, Failure> failures_;
};

}  // namespace

Census CountNodes(const NodeTable& nodes, const GangRequest& request) {
  Counter counter(nodes, request);
  for (const auto& [form, bucket] : nodes.index().all().buckets()) {
    counter.AddBucket(*form, bucket);
  }
  counter.AddDead(nodes.CountOf(v1::NODE_STATE_DEAD));
  return std::move(counter).Finish();
}

const char* MisfitName(Misfit::By by) {
  switch (by) {
    case Misfit::By::kState:
      return "state";
    case Misfit::By::kTaint:
      return "taint";
    case Misfit::By::kAccelerator:
      return "accelerator";
    case Misfit::By::kLabel:
      return "label";
    case Misfit::By::kTopology:
      return "topology";
    case Misfit::By::kDevice:
      return "device";
    case Misfit::By::kResource:
      return "resource";
    case Misfit::By::kDomain:
      return "domain";
    case Misfit::By::kSpread:
      return "spread";
  }
  return "unknown";
}

}  // namespace cohort::head
