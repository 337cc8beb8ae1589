#include "head/explain/competition.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include "common/check.h"
#include "head/explain/holdings.h"
#include "head/placement/placement.h"

namespace cohort::head {
namespace {

// Of those ahead: requests, and jobs of each.
constexpr size_t kShapesTried = 64;
constexpr size_t kJobsTriedEach = 256;
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

using Waiting = WaitingLine::Waiting;

// The cluster after a change, in which those in line are placed in turn.
class Rehearsal {
 public:
  Rehearsal(const NodeTable& nodes, const AttemptTable& attempts,
            const std::vector<Waiting>& ahead, const GangRequest& request)
      : nodes_(nodes),
        attempts_(attempts),
        ahead_(ahead),
        request_(request),
        budget_(kFormsMax,
                static_cast<int64_t>(nodes.index().all().buckets().size()) +
                    request.num_workers) {
    CopyNodes();
  }

  void Make(const Remedy& remedy) {
    std::set<AttemptId> over;
    std::set<NodeId> changed;
    Collect(remedy, over, changed);
    for (const NodeId& node : changed) index_.Put(nodes_.Imagine(node, over));
  }

  // Those ahead but `held` take their places; gives who does.  Restored by
  // Undo.
  std::vector<JobId> Run(const std::set<JobId>& held) {
    std::set<const GangRequest*> refused;
    std::map<const GangRequest*, size_t> tried;
    std::vector<JobId> placed;
    for (const Waiting& waiting : ahead_) {
      ++tried[waiting.request];
      if (held.contains(waiting.job) || refused.contains(waiting.request)) {
        continue;
      }
      if (!budget_.Take()) break;
      const Placement placement = PlaceGang(index_, *waiting.request);
      if (const Plan* const plan = std::get_if<Plan>(&placement)) {
        Take(*plan);
        placed.push_back(waiting.job);
      } else {
        refused.insert(waiting.request);
      }
    }
    for (const auto& [request, jobs] : tried) {
      too_many_ =
          too_many_ || (jobs == kJobsTriedEach && !refused.contains(request));
    }
    return placed;
  }

  void Undo() {
    for (auto& [id, node] : std::exchange(before_, {})) {
      index_.Put(std::move(node));
    }
  }

  bool Holds() { return budget_.Take() && Fits(index_, request_); }
  // It is not known what more of those ahead would do, or time is up.
  bool gave_up() const { return too_many_ || budget_.used_up(); }

 private:
  // Of nodes that are alike no more than all of them together can take.
  void CopyNodes() {
    int64_t workers = request_.num_workers;
    bool by_name = SelectsByName(request_.selector);
    for (const Waiting& waiting : ahead_) {
      workers += waiting.request->num_workers;
      by_name = by_name || SelectsByName(waiting.request->selector);
    }
    for (const auto& [form, bucket] : nodes_.index().all().buckets()) {
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

  void Collect(const Remedy& remedy, std::set<AttemptId>& over,
               std::set<NodeId>& changed) {
    changed.insert(remedy.nodes.begin(), remedy.nodes.end());
    for (const JobId& job : remedy.jobs) {
      const AttemptRecord* const attempt = attempts_.LastOf(job);
      if (attempt == nullptr) continue;
      over.insert(attempt->id);
      for (const AttemptPart& part : attempt->parts) {
        const NodeSnapshot* const node = nodes_.index().Find(part.node);
        if (node != nullptr && node->gate == NodeGate::kOpen) {
          changed.insert(part.node);
        }
      }
    }
    for (NodeSnapshot& node : NewNodes(remedy)) index_.Put(std::move(node));
    for (const Remedy& part : remedy.parts) Collect(part, over, changed);
  }

  void Take(const Plan& plan) {
    for (const PlannedPart& part : plan.parts) {
      NodeSnapshot node = *index_.Find(part.node);
      before_.try_emplace(part.node, node);
      COHORT_CHECK(node.available.Take(part.resources)) << part.node;
      for (DeviceShare& device : node.devices) {
        const auto taken = part.devices.find(device.id);
        if (taken != part.devices.end()) device.free -= taken->second;
      }
      index_.Put(std::move(node));
    }
  }

  const NodeTable& nodes_;
  const AttemptTable& attempts_;
  const std::vector<Waiting>& ahead_;
  const GangRequest& request_;
  PlanBudget budget_;
  PlacementIndex index_;
  std::map<NodeId, NodeSnapshot> before_;
  bool too_many_ = false;
};

// Whether the request has its place once those ahead but `held` have theirs.
bool HoldsWith(Rehearsal& rehearsal, const std::set<JobId>& held,
               std::vector<JobId>* placed) {
  *placed = rehearsal.Run(held);
  const bool holds = rehearsal.Holds();
  rehearsal.Undo();
  return holds;
}

// Leaves held only whom it takes: who takes a place that it does not need is
// not in its way.
void LetGo(Rehearsal& rehearsal, const std::vector<Waiting>& ahead,
           std::set<JobId>& held) {
  std::vector<JobId> placed;
  for (bool changed = held.size() <= kFirstTried; changed;) {
    changed = false;
    for (const Waiting& waiting : ahead) {
      if (!held.contains(waiting.job)) continue;
      std::set<JobId> fewer = held;
      fewer.erase(waiting.job);
      if (!HoldsWith(rehearsal, fewer, &placed)) continue;
      held = std::move(fewer);
      changed = true;
    }
  }
}

}  // namespace

Overtaking WhoTakesIt(const NodeTable& nodes, const AttemptTable& attempts,
                      const WaitingLine& line, const JobRecord& job,
                      const GangRequest& request, const Remedy& remedy) {
  size_t shapes = 0;
  const std::vector<Waiting> ahead = line.FirstAheadOf(
      job, kJobsTriedEach,
      [&shapes](const GangRequest&) { return ++shapes <= kShapesTried; });
  if (ahead.empty()) return {};
  if (shapes > kShapesTried) return {.first = {}, .known = false};
  Rehearsal rehearsal(nodes, attempts, ahead, request);
  rehearsal.Make(remedy);
  std::set<JobId> held;
  std::vector<JobId> placed;
  while (!HoldsWith(rehearsal, held, &placed)) {
    if (placed.empty() || rehearsal.gave_up()) {
      return {.first = {}, .known = false};
    }
    held.insert(placed.begin(), placed.end());
  }
  LetGo(rehearsal, ahead, held);
  Overtaking overtaking{.first = {}, .known = !rehearsal.gave_up()};
  for (const Waiting& waiting : ahead) {
    if (held.contains(waiting.job)) overtaking.first.push_back(waiting.job);
  }
  return overtaking;
}

}  // namespace cohort::head
