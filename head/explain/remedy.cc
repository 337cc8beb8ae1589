#include "head/explain/remedy.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

#include "common/check.h"

namespace cohort::head {
namespace {

constexpr int64_t kMiB = 1 << 20;

// Steps in which less of a resource is offered: whole GPUs, whole MiB, and of
// all others the smallest amount that there is.
Amount StepOf(const ResourceSet::Entry& need) {
  const Amount mib = Amount::FromUnits(kMiB);
  const Amount one = Amount::FromUnits(1);
  if (need.first == kMemory && need.second > mib) return mib;
  if (need.first == kGpu && need.second >= one) return one;
  return Amount::FromTenThousandths(1);
}

// The largest of [1, most] that holds, which all smaller ones do then too; 0:
// not even 1.
int64_t Largest(int64_t most, absl::FunctionRef<bool(int64_t)> holds) {
  if (most < 1 || !holds(1)) return 0;
  int64_t good = 1;
  int64_t bad = most + 1;
  while (bad - good > 1) {
    const int64_t middle = good + (bad - good) / 2;
    (holds(middle) ? good : bad) = middle;
  }
  return good;
}

class RequestChanges {
 public:
  RequestChanges(const PlacementIndex& nodes, const GangRequest& request,
                 PlanBudget& budget)
      : nodes_(nodes), request_(request), budget_(budget) {}

  void Find(std::vector<Remedy>& found) {
    using Kind = Remedy::Kind;
    if (request_.topology.required) {
      AddIfFits(
          {.kind = Kind::kPreferTopology, .subject = request_.topology.level},
          found);
    }
    if (request_.strategy == v1::PLACEMENT_STRATEGY_STRICT_PACK) {
      AddIfFits({.kind = Kind::kOtherStrategy, .subject = "PACK"}, found);
    } else if (request_.strategy == v1::PLACEMENT_STRATEGY_STRICT_SPREAD) {
      AddIfFits({.kind = Kind::kOtherStrategy, .subject = "SPREAD"}, found);
    }
    for (const std::string& taint : TaintsInTheWay()) {
      AddIfFits({.kind = Kind::kTolerateTaint, .subject = taint}, found);
    }
    FindSelectors(found);
    if (!request_.accelerator_type.empty()) {
      AddIfFits(
          {.kind = Kind::kAnyAccelerator, .subject = request_.accelerator_type},
          found);
    }
    FindLess(found);
    FindFewer(found);
  }

 private:
  // A request has at most as many that matter as a node has.
  static constexpr size_t kTaintsTried = 16;

  bool FitsWith(const Remedy& remedy) {
    return budget_.Take() && Fits(nodes_, Apply(remedy, request_));
  }

  bool AddIfFits(Remedy remedy, std::vector<Remedy>& found) {
    if (!FitsWith(remedy)) return false;
    found.push_back(std::move(remedy));
    return true;
  }

  std::set<std::string> TaintsInTheWay() const {
    std::set<std::string> taints;
    for (const auto& [form, bucket] : nodes_.all().buckets()) {
      if (form->gate != NodeGate::kOpen) continue;
      const Taint* const taint =
          FirstUntolerated(form->taints, request_.tolerations);
      if (taint != nullptr) taints.insert(taint->ToString());
      // By name, so that equal clusters give equal answers.
      if (taints.size() > kTaintsTried) taints.erase(std::prev(taints.end()));
    }
    return taints;
  }

  void FindSelectors(std::vector<Remedy>& found) {
    const auto& requirements = request_.selector.requirements();
    bool any = false;
    for (const LabelSelector::Requirement& requirement : requirements) {
      any |= AddIfFits({.kind = Remedy::Kind::kDropSelector,
                        .subject = requirement.ToString()},
                       found);
    }
    if (any || requirements.size() < 2) return;
    AddIfFits({.kind = Remedy::Kind::kDropSelector,
               .subject = request_.selector.ToString()},
              found);
  }

  void FindLess(std::vector<Remedy>& found) {
    std::vector<std::pair<double, Remedy>> less;  // by the part given up
    for (const ResourceSet::Entry& need : request_.per_worker) {
      const int64_t step = StepOf(need).ten_thousandths();
      Remedy remedy{.kind = Remedy::Kind::kLessOfResource,
                    .subject = need.first,
                    .from = need.second};
      const int64_t steps =
          Largest((need.second.ten_thousandths() - 1) / step, [&](int64_t n) {
            remedy.to = Amount::FromTenThousandths(n * step);
            return FitsWith(remedy);
          });
      if (steps == 0) continue;
      remedy.to = Amount::FromTenThousandths(steps * step);
      const double part = 1 - remedy.to.ToDouble() / remedy.from.ToDouble();
      less.emplace_back(part, std::move(remedy));
    }
    std::stable_sort(
        less.begin(), less.end(),
        [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto& [part, remedy] : less) found.push_back(std::move(remedy));
  }

  void FindFewer(std::vector<Remedy>& found) {
    Remedy remedy{.kind = Remedy::Kind::kFewerWorkers,
                  .subject = "",
                  .from = Amount::FromUnits(request_.num_workers)};
    const int64_t workers =
        Largest(request_.num_workers - 1, [&](int64_t fewer) {
          remedy.to = Amount::FromUnits(fewer);
          return FitsWith(remedy);
        });
    if (workers == 0) return;
    remedy.to = Amount::FromUnits(workers);
    found.push_back(std::move(remedy));
  }

  const PlacementIndex& nodes_;
  const GangRequest& request_;
  PlanBudget& budget_;
};

LabelSelector Without(const LabelSelector& selector, const std::string& text) {
  if (text == selector.ToString()) return LabelSelector();
  std::vector<std::string> kept;
  for (const LabelSelector::Requirement& requirement :
       selector.requirements()) {
    if (requirement.ToString() != text) kept.push_back(requirement.ToString());
  }
  absl::StatusOr<LabelSelector> left = LabelSelector::ParseAll(kept);
  COHORT_CHECK(left.ok()) << left.status();
  return *std::move(left);
}

Toleration ForTaint(const std::string& text) {
  absl::StatusOr<Toleration> toleration = Toleration::Parse(text);
  COHORT_CHECK(toleration.ok()) << toleration.status();
  return *std::move(toleration);
}

}  // namespace

const char* RemedyName(Remedy::Kind kind) {
  switch (kind) {
    case Remedy::Kind::kPreferTopology:
      return "PREFER_TOPOLOGY";
    case Remedy::Kind::kOtherStrategy:
      return "OTHER_STRATEGY";
    case Remedy::Kind::kTolerateTaint:
      return "TOLERATE_TAINT";
    case Remedy::Kind::kDropSelector:
      return "DROP_SELECTOR";
    case Remedy::Kind::kAnyAccelerator:
      return "ANY_ACCELERATOR";
    case Remedy::Kind::kLessOfResource:
      return "LESS_OF_RESOURCE";
    case Remedy::Kind::kFewerWorkers:
      return "FEWER_WORKERS";
    case Remedy::Kind::kNodeReturns:
      return "NODE_RETURNS";
    case Remedy::Kind::kUndrain:
      return "UNDRAIN";
    case Remedy::Kind::kJobEnds:
      return "JOB_ENDS";
    case Remedy::Kind::kMoreNodes:
      return "MORE_NODES";
    case Remedy::Kind::kOtherNodes:
      return "OTHER_NODES";
  }
  return "UNKNOWN";
}

GangRequest Apply(const Remedy& remedy, GangRequest request) {
  switch (remedy.kind) {
    case Remedy::Kind::kPreferTopology:
      request.topology.required = false;
      break;
    case Remedy::Kind::kOtherStrategy:
      request.strategy = remedy.subject == "PACK"
                             ? v1::PLACEMENT_STRATEGY_PACK
                             : v1::PLACEMENT_STRATEGY_SPREAD;
      break;
    case Remedy::Kind::kTolerateTaint:
      request.tolerations.push_back(ForTaint(remedy.subject));
      std::sort(request.tolerations.begin(), request.tolerations.end());
      break;
    case Remedy::Kind::kDropSelector:
      request.selector = Without(request.selector, remedy.subject);
      break;
    case Remedy::Kind::kAnyAccelerator:
      request.accelerator_type.clear();
      break;
    case Remedy::Kind::kLessOfResource:
      request.per_worker.Set(remedy.subject, remedy.to);
      break;
    case Remedy::Kind::kFewerWorkers:
      request.num_workers = static_cast<int>(remedy.to.WholeUnits());
      break;
    case Remedy::Kind::kNodeReturns:
    case Remedy::Kind::kUndrain:
    case Remedy::Kind::kJobEnds:
    case Remedy::Kind::kMoreNodes:
    case Remedy::Kind::kOtherNodes:
      COHORT_CHECK(false) << RemedyName(remedy.kind);
  }
  return request;
}

void AddRequestRemedies(const PlacementIndex& nodes, const GangRequest& request,
                        PlanBudget& budget, Remedies& remedies) {
  RequestChanges(nodes, request, budget).Find(remedies.found);
  if (budget.used_up()) remedies.complete = false;
}

Remedies FindRemedies(const NodeTable& nodes, const Holdings& holdings,
                      const GangRequest& request, RemedyLimits limits) {
  Remedies remedies;
  if (!request.fault.empty()) return remedies;
  const auto forms = static_cast<int64_t>(nodes.index().all().buckets().size());
  // Half of the plans each, so that neither half starves the other.
  PlanBudget first(limits.forms_max / 2, forms + request.num_workers);
  AddRequestRemedies(nodes.index(), request, first, remedies);
  PlanBudget second(limits.forms_max / 2, forms + request.num_workers);
  AddClusterRemedies(nodes, holdings, request, limits, second, remedies);
  return remedies;
}

}  // namespace cohort::head
