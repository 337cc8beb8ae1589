#include "head/explain/remedy.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"

#include "common/resource_text.h"
#include "head/placement/placement.h"

namespace cohort::head {
namespace {

// A request has at most as many that matter as a node has.
constexpr size_t kTaintsTried = 16;

// Steps in which less of a resource is offered: whole GPUs, whole MiB, and of
// all others the smallest amount that there is.
Amount StepOf(const ResourceSet::Entry& need) {
  const Amount mib = Amount::FromUnits(1 << 20);
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

// Exact: it is what lets the job start.
std::string Exact(const std::string& resource, Amount amount) {
  return AmountText(resource, amount, SizeRounding::kNone);
}

// The flag of `cohort submit` for an amount of a resource.
std::string FlagFor(const std::string& resource, Amount amount) {
  if (resource == kCpu) return absl::StrCat("--cpus ", amount.ToString());
  if (resource == kGpu) return absl::StrCat("--gpus ", amount.ToString());
  if (resource == kMemory) {
    return absl::StrCat("--memory ", Exact(resource, amount));
  }
  return absl::StrCat("--resources ", resource, "=", amount.ToString());
}

class RequestChanges {
 public:
  RequestChanges(const PlacementIndex& nodes, const GangRequest& request,
                 int64_t plans, Remedies& remedies)
      : nodes_(nodes), request_(request), plans_left_(plans), out_(remedies) {}

  void Find() {
    if (request_.topology.required) {
      Remedy prefer = Changed("PREFER_TOPOLOGY");
      prefer.request.topology.required = false;
      const std::string& level = request_.topology.level;
      AddIfFits(prefer,
                absl::StrCat("prefer one ", level, " instead of requiring it"),
                absl::StrCat("--prefer-same ", level));
    }
    if (request_.strategy == v1::PLACEMENT_STRATEGY_STRICT_PACK) {
      TryStrategy(v1::PLACEMENT_STRATEGY_PACK);
    } else if (request_.strategy == v1::PLACEMENT_STRATEGY_STRICT_SPREAD) {
      TryStrategy(v1::PLACEMENT_STRATEGY_SPREAD);
    }
    if (request_.workers_per_node > 0) {
      Remedy any = Changed("ANY_WORKERS_PER_NODE");
      any.request.workers_per_node = 0;
      AddIfFits(any,
                absl::StrCat("any number of workers on a node instead of ",
                             request_.workers_per_node),
                absl::StrCat("--num-workers ", request_.num_workers));
    }
    for (const std::string& taint : TaintsInTheWay()) {
      Remedy tolerate = Changed("TOLERATE_TAINT");
      std::vector<Toleration>& tolerations = tolerate.request.tolerations;
      tolerations.push_back(*Toleration::Parse(taint));
      std::sort(tolerations.begin(), tolerations.end());
      AddIfFits(tolerate, absl::StrCat("tolerate the taint ", taint),
                absl::StrCat("--tolerate '", taint, "'"));
    }
    TryWithoutSelectors();
    if (!request_.accelerator_type.empty()) {
      Remedy any = Changed("ANY_ACCELERATOR");
      any.request.accelerator_type.clear();
      AddIfFits(any,
                absl::StrCat("any accelerator instead of ",
                             request_.accelerator_type),
                "");
    }
    FindLess();
    FindFewer();
    if (plans_left_ <= 0) out_.complete = false;
  }

 private:
  Remedy Changed(const char* kind) const {
    Remedy remedy;
    remedy.told.set_kind(kind);
    remedy.told.set_of_request(true);
    remedy.request = request_;
    return remedy;
  }

  bool FitsAs(const GangRequest& changed) {
    return plans_left_-- > 0 && Fits(nodes_, changed);
  }

  bool AddIfFits(Remedy& remedy, const std::string& text,
                 const std::string& how) {
    if (!FitsAs(remedy.request)) return false;
    remedy.told.set_text(text);
    remedy.told.set_how(how);
    out_.found.push_back(std::move(remedy));
    return true;
  }

  void TryStrategy(PlacementStrategy strategy) {
    Remedy other = Changed("OTHER_STRATEGY");
    other.request.strategy = strategy;
    const char* const name = StrategyName(strategy);
    AddIfFits(other, absl::StrCat("strategy ", name),
              absl::StrCat("--strategy ", name));
  }

  // By name, so that equal clusters give equal answers.
  std::set<std::string> TaintsInTheWay() const {
    std::set<std::string> taints;
    for (const auto& [form, bucket] : nodes_.all().buckets()) {
      if (form->gate != NodeGate::kOpen) continue;
      const Taint* const taint =
          FirstUntolerated(form->taints, request_.tolerations);
      if (taint != nullptr) taints.insert(taint->ToString());
      if (taints.size() > kTaintsTried) taints.erase(std::prev(taints.end()));
    }
    return taints;
  }

  bool TryWithout(const std::string& dropped, const LabelSelector& rest) {
    Remedy without = Changed("DROP_SELECTOR");
    without.request.selector = rest;
    return AddIfFits(without, absl::StrCat("without the selector ", dropped),
                     "");
  }

  // One requirement, or all when no single one is enough.
  void TryWithoutSelectors() {
    std::vector<std::string> all;
    for (const auto& requirement : request_.selector.requirements()) {
      all.push_back(requirement.ToString());
    }
    bool any = false;
    for (const std::string& dropped : all) {
      std::vector<std::string> kept = all;
      std::erase(kept, dropped);
      any |= TryWithout(dropped, *LabelSelector::ParseAll(kept));
    }
    if (any || all.size() < 2) return;
    TryWithout(request_.selector.ToString(), LabelSelector());
  }

  // The smallest part given up first.
  void FindLess() {
    std::vector<std::pair<double, Remedy>> all;
    for (const ResourceSet::Entry& need : request_.per_worker) {
      const std::string& name = need.first;
      const Amount asked = need.second;
      const int64_t step = StepOf(need).ten_thousandths();
      Remedy less = Changed("LESS_OF_RESOURCE");
      Amount left;
      const auto give = [&](int64_t steps) {
        left = Amount::FromTenThousandths(steps * step);
        less.request.per_worker.Set(name, left);
      };
      const int64_t steps =
          Largest((asked.ten_thousandths() - 1) / step, [&](int64_t n) {
            give(n);
            return FitsAs(less.request);
          });
      if (steps == 0) continue;
      give(steps);
      less.told.set_text(absl::StrCat(name, " ", Exact(name, left),
                                      " a worker instead of ",
                                      Exact(name, asked)));
      less.told.set_how(FlagFor(name, left));
      all.emplace_back(1 - left.ToDouble() / asked.ToDouble(), std::move(less));
    }
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
      return a.first < b.first;
    });
    for (auto& [part, less] : all) out_.found.push_back(std::move(less));
  }

  void FindFewer() {
    Remedy fewer = Changed("FEWER_WORKERS");
    const int64_t each = LeastOnANode(request_);
    const int64_t nodes =
        Largest((request_.num_workers - 1) / each, [&](int64_t n) {
          fewer.request.num_workers = static_cast<int>(n * each);
          return FitsAs(fewer.request);
        });
    if (nodes == 0) return;
    const int64_t workers = nodes * each;
    fewer.request.num_workers = static_cast<int>(workers);
    fewer.told.set_text(absl::StrCat(workers,
                                     workers == 1 ? " worker" : " workers",
                                     " instead of ", request_.num_workers));
    fewer.told.set_how(request_.workers_per_node == 0
                           ? absl::StrCat("--num-workers ", workers)
                           : absl::StrCat("--nnodes ", nodes));
    out_.found.push_back(std::move(fewer));
  }

  const PlacementIndex& nodes_;
  const GangRequest& request_;
  int64_t plans_left_;
  Remedies& out_;
};

}  // namespace

Remedies FindRemedies(const NodeTable& nodes, const Holdings& holdings,
                      const GangRequest& request, const RemedyLimits& limits,
                      NodeTrial& trial) {
  Remedies remedies;
  if (!request.fault.empty()) return remedies;
  const auto forms = static_cast<int64_t>(nodes.index().all().buckets().size());
  // Half of the plans each, so that neither half starves the other.
  const int64_t plans =
      1 + limits.forms_max / 2 / (forms + request.num_workers);
  RequestChanges(nodes.index(), request, plans, remedies).Find();
  AddClusterRemedies(nodes, holdings, request, limits, trial, plans, remedies);
  return remedies;
}

}  // namespace cohort::head
