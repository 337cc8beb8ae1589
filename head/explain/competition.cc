#include "head/explain/competition.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "common/check.h"
#include "head/explain/holdings.h"
#include "head/placement/placement.h"

namespace cohort::head {
namespace {

// Steps of which every order is tried.
constexpr size_t kStepsInAnyOrder = 3;
// Those that are told one by one are tried one by one.
constexpr size_t kFirstTried = 16;
// As RemedyLimits::forms_max.
constexpr int64_t kFormsMax = 300'000;

bool WantTheSame(const GangRequest& a, const GangRequest& b) {
  return std::any_of(a.per_worker.begin(), a.per_worker.end(),
                     [&b](const ResourceSet::Entry& need) {
                       return !b.per_worker.Get(need.first).IsZero();
                     });
}

bool SuitsIdle(const NodeForm& form, const NodeSnapshot& node,
               const GangRequest& request) {
  return FormAllowsIdle(form, request) && LabelsFit(node, request) &&
         IdleCapacity(form, request.per_worker, 1) > 0;
}

}  // namespace

Competition::Competition(const PlacementIndex& nodes,
                         const GangRequest& request)
    : nodes_(nodes), request_(request) {
  for (const auto& [form, bucket] : nodes.all().buckets()) {
    for (const auto& [labels, alike] : bucket.by_labels) {
      if (suits_any_ || --looks_left_ < 0) return;
      suits_any_ = Meets(*form, alike, request);
    }
  }
}

bool Competition::Meets(const NodeForm& form, const NodesById& alike,
                        const GangRequest& other) {
  // Nodes that are alike differ in their names.
  const bool by_name =
      SelectsByName(request_.selector) || SelectsByName(other.selector);
  for (const auto& [id, node] : alike) {
    if (SuitsIdle(form, *node, request_) && SuitsIdle(form, *node, other)) {
      return true;
    }
    if (!by_name || --looks_left_ < 0) return false;
  }
  return false;
}

bool Competition::With(const GangRequest& other) {
  if (!WantTheSame(request_, other)) return false;
  // Both wait for nodes that are not here yet.
  if (!suits_any_) return true;
  for (const auto& [form, bucket] : nodes_.all().buckets()) {
    for (const auto& [labels, alike] : bucket.by_labels) {
      if (--looks_left_ < 0) return true;
      if (Meets(*form, alike, other)) return true;
    }
  }
  return false;
}

namespace {

// One of those of which a change consists.
struct Step {
  // What a job holds of a node comes free when that says so.
  std::optional<JobId> ends;
  std::optional<NodeId> on;  // nothing: it holds nothing
  std::optional<NodeId> opens;
  std::optional<NodeSnapshot> comes;
  bool lets_in = false;
};

void AddEnd(const JobId& job, const AttemptTable& attempts,
            std::vector<Step>& steps) {
  if (std::any_of(steps.begin(), steps.end(),
                  [&job](const Step& step) { return step.ends == job; })) {
    return;
  }
  const AttemptRecord* const attempt = attempts.LastOf(job);
  bool holds = false;
  if (attempt != nullptr) {
    for (const AttemptPart& part : attempt->parts) {
      if (IsOver(part)) continue;
      holds = true;
      Step& step = steps.emplace_back();
      step.ends = job;
      step.on = part.node;
    }
  }
  if (!holds) steps.emplace_back().ends = job;
}

void AddSteps(const Remedy& remedy, const AttemptTable& attempts,
              std::vector<Step>& steps) {
  for (const JobId& job : remedy.jobs) AddEnd(job, attempts, steps);
  for (const NodeId& node : remedy.nodes) steps.emplace_back().opens = node;
  for (NodeSnapshot& node : NewNodes(remedy)) {
    steps.emplace_back().comes = std::move(node);
  }
  for (const Remedy& part : remedy.parts) AddSteps(part, attempts, steps);
}

std::vector<Step> AllSteps(const ChangeForJob& change,
                           const AttemptTable& attempts) {
  std::vector<Step> steps;
  AddSteps(change.remedy, attempts, steps);
  for (const JobId& job : change.after) AddEnd(job, attempts, steps);
  if (change.let_in) steps.emplace_back().lets_in = true;
  return steps;
}

// The nodes while a change is made, in which those in line are placed.
class Stage {
 public:
  // Of nodes that are alike it has no more than `workers` can take.
  Stage(const NodeTable& nodes, const AttemptTable& attempts, int64_t workers,
        bool by_name)
      : nodes_(nodes), attempts_(attempts) {
    for (const auto& [form, bucket] : nodes.index().all().buckets()) {
      if (form->gate != NodeGate::kOpen) continue;
      for (const auto& [labels, alike] : bucket.by_labels) {
        int64_t left = workers;
        for (const auto& [id, node] : alike) {
          index_.Put(*node);
          if (--left == 0 && !by_name) break;
        }
      }
    }
  }

  const PlacementIndex& index() const { return index_; }

  void Make(const Step& step) {
    if (step.on.has_value()) End(*step.ends, *step.on);
    if (step.opens.has_value()) {
      open_.insert(*step.opens);
      Show(*step.opens);
    }
    if (step.comes.has_value()) Put(*step.comes);
  }

  void Take(const Plan& plan) {
    for (const PlannedPart& part : plan.parts) {
      NodeSnapshot node = *index_.Find(part.node);
      TakeFrom(node, part);
      taken_[part.node].push_back(part);
      Put(std::move(node));
    }
  }

  // As it was at first.
  void Undo() {
    over_.clear();
    open_.clear();
    taken_.clear();
    for (auto& [id, node] : std::exchange(before_, {})) {
      if (node.has_value()) {
        index_.Put(*std::move(node));
      } else {
        index_.Remove(id);
      }
    }
  }

 private:
  void End(const JobId& job, const NodeId& id) {
    over_[id].insert(attempts_.LastOf(job)->id);
    const NodeSnapshot* const node = nodes_.index().Find(id);
    const bool is_open = node != nullptr && node->gate == NodeGate::kOpen;
    if (is_open || open_.contains(id)) Show(id);
  }

  void Show(const NodeId& id) {
    NodeSnapshot node = nodes_.Imagine(id, over_[id]);
    for (const PlannedPart& part : taken_[id]) TakeFrom(node, part);
    Put(std::move(node));
  }

  void Put(NodeSnapshot node) {
    const NodeSnapshot* const now = index_.Find(node.id);
    before_.try_emplace(node.id, now == nullptr
                                     ? std::nullopt
                                     : std::optional<NodeSnapshot>(*now));
    index_.Put(std::move(node));
  }

  static void TakeFrom(NodeSnapshot& node, const PlannedPart& part) {
    COHORT_CHECK(node.available.Take(part.resources)) << part.node;
    for (DeviceShare& device : node.devices) {
      const auto taken = part.devices.find(device.id);
      if (taken != part.devices.end()) device.free -= taken->second;
    }
  }

  const NodeTable& nodes_;
  const AttemptTable& attempts_;
  PlacementIndex index_;
  std::map<NodeId, std::set<AttemptId>> over_;
  std::set<NodeId> open_;
  std::map<NodeId, std::vector<PlannedPart>> taken_;
  std::map<NodeId, std::optional<NodeSnapshot>> before_;
};

int64_t WorkersOf(const Contenders& contenders, const GangRequest& request) {
  int64_t workers = request.num_workers;
  for (const Contender& each : contenders.all) {
    workers += each.request->num_workers;
  }
  return workers;
}

bool AnyByName(const Contenders& contenders, const GangRequest& request) {
  return SelectsByName(request.selector) ||
         std::any_of(contenders.all.begin(), contenders.all.end(),
                     [](const Contender& each) {
                       return SelectsByName(each.request->selector);
                     });
}

// What the head does while a change is made, step by step: after each those in
// line are placed in turn.
class Rehearsal {
 public:
  enum class Result { kStarts, kDoesNot, kUnknown };
  // One after the other; those of a group at once.
  using Group = std::vector<const Step*>;
  using Order = std::vector<Group>;

  Rehearsal(const NodeTable& nodes, const AttemptTable& attempts,
            const Contenders& contenders, const ChangeForJob& change)
      : contenders_(contenders),
        change_(change),
        budget_(kFormsMax,
                static_cast<int64_t>(nodes.index().all().buckets().size()) +
                    change.request.num_workers),
        stage_(nodes, attempts, WorkersOf(contenders, change.request),
               AnyByName(contenders, change.request)) {}

  // Whether the job starts with those held; else who took what was free.
  Result Run(const Order& order, const std::set<JobId>& held,
             std::set<JobId>* placed) {
    ended_.clear();
    placed_.clear();
    is_let_in_ = !change_.let_in;
    std::map<JobId, int64_t> ending;  // on how many nodes
    for (const Group& group : order) {
      for (const Step* const step : group) {
        if (step->ends.has_value()) ++ending[*step->ends];
      }
    }
    Result result = Result::kDoesNot;
    for (const Group& group : order) {
      if (result != Result::kDoesNot) break;
      for (const Step* const step : group) {
        stage_.Make(*step);
        if (step->ends.has_value() && --ending[*step->ends] == 0) {
          ended_.insert(*step->ends);
        }
        is_let_in_ = is_let_in_ || step->lets_in;
      }
      result = Pass(held);
    }
    for (const size_t which : placed_) {
      placed->insert(contenders_.all[which].hold);
    }
    stage_.Undo();
    return result;
  }

  // Those who find room once all steps are made, were nobody else there, and
  // ask for something else than the job.  Nothing: time is up.
  std::optional<std::set<JobId>> Others(const Order& order) {
    for (const Group& group : order) {
      for (const Step* const step : group) stage_.Make(*step);
    }
    std::map<const GangRequest*, bool> fits;
    std::set<JobId> others;
    bool in_time = true;
    for (const Contender& each : contenders_.all) {
      if (*each.request == change_.request) continue;
      const auto [known, fresh] = fits.try_emplace(each.request, false);
      if (fresh) {
        in_time = in_time && budget_.Take();
        known->second = in_time && Fits(stage_.index(), *each.request);
        in_time = in_time && !(known->second && IsCut(each.request));
      }
      if (known->second) others.insert(each.hold);
    }
    stage_.Undo();
    if (!in_time) return std::nullopt;
    return others;
  }

 private:
  bool IsCut(const GangRequest* request) const {
    return contenders_.cut.contains(request);
  }

  // Elements that may run beside the `before` ones that wait.
  bool HasPlace(size_t which, int64_t before) const {
    const Contenders::Array& array = contenders_.arrays[which];
    const auto ended = std::count_if(
        ended_.begin(), ended_.end(),
        [&array](const JobId& job) { return job.array() == array.id; });
    return array.taken - ended + before < array.limit;
  }

  Result Pass(const std::set<JobId>& held) {
    std::vector<int64_t> before(contenders_.arrays.size(), 0);
    std::set<const GangRequest*> refused;
    for (size_t i = 0; i <= contenders_.all.size(); ++i) {
      if (i == contenders_.ahead) {
        if (!AllRefused(0, i, refused)) return Result::kUnknown;
        const bool may_start =
            is_let_in_ && HaveEnded(change_.after) &&
            (!contenders_.own_array.has_value() ||
             HasPlace(*contenders_.own_array, before[*contenders_.own_array]));
        if (may_start) {
          if (!budget_.Take()) return Result::kUnknown;
          if (Fits(stage_.index(), change_.request)) return Result::kStarts;
        }
      }
      if (i == contenders_.all.size()) break;
      const Contender& each = contenders_.all[i];
      if (held.contains(each.hold)) continue;
      if (each.array.has_value() &&
          !HasPlace(*each.array, before[*each.array]++)) {
        continue;
      }
      if (placed_.contains(i) || refused.contains(each.request) ||
          !HaveEnded(each.after)) {
        continue;
      }
      if (!budget_.Take()) return Result::kUnknown;
      const Placement placement = PlaceGang(stage_.index(), *each.request);
      if (const Plan* const plan = std::get_if<Plan>(&placement)) {
        stage_.Take(*plan);
        placed_.insert(i);
      } else {
        refused.insert(each.request);
      }
    }
    return AllRefused(contenders_.ahead, contenders_.all.size(), refused)
               ? Result::kDoesNot
               : Result::kUnknown;
  }

  bool HaveEnded(const std::vector<JobId>& jobs) const {
    return std::all_of(jobs.begin(), jobs.end(), [this](const JobId& job) {
      return ended_.contains(job);
    });
  }

  // Of requests of which more wait than are known: whether none of them fits.
  bool AllRefused(size_t from, size_t to,
                  const std::set<const GangRequest*>& refused) const {
    for (size_t i = from; i < to; ++i) {
      const GangRequest* const request = contenders_.all[i].request;
      if (IsCut(request) && !refused.contains(request)) return false;
    }
    return true;
  }

  const Contenders& contenders_;
  const ChangeForJob& change_;
  PlanBudget budget_;
  Stage stage_;
  // In the course of one run.
  std::set<JobId> ended_;
  std::set<size_t> placed_;
  bool is_let_in_ = true;
};

// All orders of few steps; of many the job is let in before them or after.
std::vector<Rehearsal::Order> OrdersOf(const std::vector<Step>& steps) {
  Rehearsal::Order order;
  if (steps.size() <= kStepsInAnyOrder) {
    for (const Step& step : steps) order.push_back({&step});
  } else {
    Rehearsal::Group room;
    Rehearsal::Group entry;
    for (const Step& step : steps) {
      (step.lets_in ? entry : room).push_back(&step);
    }
    order.push_back(std::move(room));
    if (!entry.empty()) order.push_back(std::move(entry));
  }
  std::sort(order.begin(), order.end());
  std::vector<Rehearsal::Order> orders;
  do {
    orders.push_back(order);
  } while (std::next_permutation(order.begin(), order.end()));
  return orders;
}

// In whatever order.
Rehearsal::Result RunAll(Rehearsal& rehearsal,
                         const std::vector<Rehearsal::Order>& orders,
                         const std::set<JobId>& held, std::set<JobId>* placed) {
  for (const Rehearsal::Order& order : orders) {
    placed->clear();
    const Rehearsal::Result result = rehearsal.Run(order, held, placed);
    if (result != Rehearsal::Result::kStarts) return result;
  }
  return Rehearsal::Result::kStarts;
}

// Leaves held only whom it takes: who takes a place that it does not need is
// not in its way.
void LetGo(Rehearsal& rehearsal, const std::vector<Rehearsal::Order>& orders,
           std::set<JobId>& held) {
  std::set<JobId> placed;
  for (bool changed = held.size() <= kFirstTried; changed;) {
    changed = false;
    for (const JobId& one : std::set<JobId>(held)) {
      std::set<JobId> fewer = held;
      fewer.erase(one);
      if (RunAll(rehearsal, orders, fewer, &placed) !=
          Rehearsal::Result::kStarts) {
        continue;
      }
      held = std::move(fewer);
      changed = true;
    }
  }
}

Overtaking Unknown() { return {.first = {}, .helps = true, .known = false}; }

}  // namespace

std::set<JobId> EndsOf(const ChangeForJob& change,
                       const AttemptTable& attempts) {
  std::set<JobId> ends;
  for (const Step& step : AllSteps(change, attempts)) {
    if (step.ends.has_value()) ends.insert(*step.ends);
  }
  return ends;
}

size_t StepsOf(const ChangeForJob& change, const AttemptTable& attempts) {
  return AllSteps(change, attempts).size();
}

Overtaking WhoTakesIt(const NodeTable& nodes, const AttemptTable& attempts,
                      const Contenders& contenders,
                      const ChangeForJob& change) {
  if (contenders.too_many) return Unknown();
  const std::vector<Step> steps = AllSteps(change, attempts);
  const std::vector<Rehearsal::Order> orders = OrdersOf(steps);
  Rehearsal rehearsal(nodes, attempts, contenders, change);
  std::set<JobId> held;
  const bool any_order = steps.size() <= kStepsInAnyOrder;
  if (!any_order) {
    std::optional<std::set<JobId>> others = rehearsal.Others(orders.front());
    if (!others.has_value()) return Unknown();
    held = *std::move(others);
  }
  for (;;) {
    std::set<JobId> placed;
    const Rehearsal::Result result = RunAll(rehearsal, orders, held, &placed);
    if (result == Rehearsal::Result::kStarts) break;
    if (result == Rehearsal::Result::kUnknown) return Unknown();
    if (placed.empty()) return {.first = {}, .helps = false, .known = true};
    held.insert(placed.begin(), placed.end());
  }
  if (any_order) LetGo(rehearsal, orders, held);
  Overtaking overtaking;
  for (const Contender& each : contenders.all) {
    if (held.erase(each.hold) == 1) overtaking.first.push_back(each.hold);
  }
  return overtaking;
}

}  // namespace cohort::head
