#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/resource_text.h"
#include "head/explain/remedy.h"
#include "head/placement/candidates.h"
#include "head/placement/refusal.h"
#include "head/state/wait.h"

namespace cohort::head {
namespace {

// The domain that the request has to stay in; empty when it need not.
std::string DomainOf(const NodeSnapshot& node, const GangRequest& request) {
  return InOneDomain(request) ? node.labels.at(request.topology.level) : "";
}

// Whether a node may be one that is not here yet: a new one has another name.
bool MayBeNew(const LabelSelector& selector) {
  const auto& all = selector.requirements();
  return std::all_of(all.begin(), all.end(), [](const auto& requirement) {
    return requirement.key != kHostLevel ||
           requirement.op == LabelSelector::Operator::kNotIn;
  });
}

// "CPU 4, GPU 2 (H100), labelled rack=new".
std::string NodeText(const NodeSnapshot& node) {
  std::string text = ResourcesText(node.total, SizeRounding::kNone);
  if (!node.accelerator.empty()) {
    absl::StrAppend(&text, " (", node.accelerator, ")");
  }
  const char* before = ", labelled ";
  for (const auto& [key, value] : node.labels) {
    absl::StrAppend(&text, std::exchange(before, ","), key, "=", value);
  }
  return text;
}

// Its name, or its id where others are named so too.
std::string AddressOf(const NodeSnapshot& node, const NodeTable& nodes) {
  const auto same =
      std::count_if(nodes.records().begin(), nodes.records().end(),
                    [&node](const auto& each) {
                      return each.second.node.name() == node.name;
                    });
  return same == 1 ? node.name : node.id.ToHex();
}

class ClusterChanges {
 public:
  ClusterChanges(const NodeTable& nodes, const Holdings& holdings,
                 const GangRequest& request, const RemedyLimits& limits,
                 NodeTrial& trial, int64_t plans, Remedies& remedies)
      : nodes_(nodes),
        holdings_(holdings),
        request_(request),
        limits_(limits),
        trial_(trial),
        plans_left_(plans),
        out_(remedies),
        missing_(request) {
    // A gang that must share a node is packed strictly, for whatever reason.
    if (OnOneNode(request)) {
      missing_.strategy = v1::PLACEMENT_STRATEGY_STRICT_PACK;
    }
    Fit fit(request);
    const Scope scope(nodes.index(), request.selector);
    if (!InOneDomain(request)) {
      rooms_[""] = RoomIn(scope.nodes(), fit, /*idle=*/false);
      return;
    }
    for (const auto& [domain, group] :
         scope.DomainsOf(request.topology.level)) {
      rooms_[domain] = RoomIn(group, fit, /*idle=*/false);
    }
  }

  void Find() {
    FindOpened();
    FindJob();
    if (MayBeNew(request_.selector)) FindNewNodes();
    if (plans_left_ <= 0 || !holdings_.complete) out_.complete = false;
  }

 private:
  // Workers that lack room now in the domain.
  int64_t MissingIn(const std::string& domain) {
    return rooms_[domain].MissingFor(missing_);
  }

  // The domain that lacks the least, and how much; a new one where all lack
  // everything.
  std::pair<std::string, int64_t> Nearest() const {
    std::pair<std::string, int64_t> nearest("new", request_.num_workers);
    for (const auto& [domain, room] : rooms_) {
      const int64_t missing = room.MissingFor(missing_);
      if (missing < nearest.second) nearest = {domain, missing};
    }
    return nearest;
  }

  bool FitsWith(std::span<const NodeSnapshot> changed) {
    return plans_left_-- > 0 &&
           trial_.Ask(changed, [this](const PlacementIndex& nodes) {
             return Fits(nodes, request_);
           });
  }

  void Add(const char* kind, std::string text, std::string how, Remedy remedy) {
    remedy.told.set_kind(kind);
    remedy.told.set_text(std::move(text));
    remedy.told.set_how(std::move(how));
    out_.found.push_back(std::move(remedy));
  }

  // ---- nodes that take no new work now ----

  struct Closed {
    NodeSnapshot opened;
    int64_t capacity = 0;
    bool dead = false;
  };
  using ClosedByDomain = std::map<std::string, std::vector<Closed>>;

  // By whether it is a drain that alone keeps them from taking new work, or
  // that alone they are not there.
  std::map<bool, ClosedByDomain> FindClosed() const {
    std::map<bool, ClosedByDomain> closed;
    for (const auto& [id, record] : nodes_.records()) {
      const bool is_drained = record.node.has_drain();
      const bool is_there = record.state == v1::NODE_STATE_ALIVE &&
                            nodes_.IsOffered(id) &&
                            nodes_.NotReadyBecause(id).empty();
      if (is_drained != is_there) continue;
      NodeSnapshot opened = nodes_.Imagine(id, {});
      const NodeForm form = FormOf(opened);
      if (!FormAllows(form, request_) || !LabelsFit(opened, request_)) continue;
      const int64_t capacity = Capacity(form, request_);
      if (capacity == 0) continue;
      const std::string domain = DomainOf(opened, request_);
      closed[is_drained][domain].push_back(
          {std::move(opened), capacity, record.state == v1::NODE_STATE_DEAD});
    }
    return closed;
  }

  // The fewest are those that hold the most.
  std::vector<NodeSnapshot> FewestOf(ClosedByDomain& all) {
    std::vector<NodeSnapshot> fewest;
    for (auto& [domain, closed] : all) {
      std::sort(closed.begin(), closed.end(), [](const auto& a, const auto& b) {
        return std::tie(b.capacity, a.dead, a.opened.id) <
               std::tie(a.capacity, b.dead, b.opened.id);
      });
      Room room = rooms_[domain];
      std::vector<NodeSnapshot> opened;
      for (Closed& one : closed) {
        if (room.Holds(missing_)) break;
        room.Add(one.capacity, 1);
        opened.push_back(std::move(one.opened));
      }
      if (!fewest.empty() && opened.size() >= fewest.size()) continue;
      if (room.Holds(missing_) && FitsWith(opened)) fewest = std::move(opened);
    }
    return fewest;
  }

  void FindOpened() {
    for (auto& [drained, closed] : FindClosed()) {
      Remedy remedy;
      remedy.opened = FewestOf(closed);
      if (remedy.opened.empty()) continue;
      std::vector<std::string> names;
      bool not_ready = true;
      for (const NodeSnapshot& node : remedy.opened) {
        names.push_back(node.name);
        not_ready =
            not_ready && nodes_.ShownState(node.id) == v1::NODE_STATE_NOT_READY;
      }
      const std::string text = NamesText(names);
      if (drained) {
        const std::string how =
            names.size() > 1
                ? ""
                : "cohort undrain " + AddressOf(remedy.opened[0], nodes_);
        Add("UNDRAIN", "undrain " + text, how, std::move(remedy));
      } else {
        Add("NODE_RETURNS",
            text + (not_ready ? " being ready again" : " coming back"), "",
            std::move(remedy));
      }
    }
  }

  // ---- jobs that hold what is missing ----

  // Of those whose end by itself is enough the one that holds least.
  void FindJob() {
    const int64_t missing = Nearest().second;
    std::vector<std::pair<JobId, const Holding*>> jobs;
    for (const auto& [job, holding] : holdings_.jobs) {
      if (holding.attempts.empty() || holding.gain < missing) continue;
      jobs.emplace_back(job, &holding);
    }
    std::stable_sort(jobs.begin(), jobs.end(),
                     [](const auto& a, const auto& b) {
                       return a.second->Size() < b.second->Size();
                     });
    int tries = 0;
    for (const auto& [job, holding] : jobs) {
      if (++tries > limits_.tries_max) {
        out_.complete = false;
        return;
      }
      std::vector<NodeSnapshot> without;
      for (const NodeId& node : holding->nodes) {
        without.push_back(nodes_.Imagine(node, holding->attempts));
      }
      if (!FitsWith(without)) continue;
      Remedy remedy;
      remedy.ends = job;
      return Add("JOB_ENDS", absl::StrCat("the end of job ", job.ToText()), "",
                 std::move(remedy));
    }
  }

  // ---- more nodes ----

  // How many idle nodes like this one are missing; 0: none can do.
  int64_t NodesMissing(const NodeForm& form, const NodeSnapshot& node) {
    const int64_t capacity = IdleCapacity(form, request_);
    if (capacity == 0 || !LabelsFit(node, request_)) return 0;
    const int64_t missing = MissingIn(DomainOf(node, request_));
    switch (missing_.strategy) {
      case v1::PLACEMENT_STRATEGY_STRICT_PACK:
        return capacity < request_.num_workers ? 0 : 1;
      case v1::PLACEMENT_STRATEGY_STRICT_SPREAD:
        return missing;
      default:
        return (missing + capacity - 1) / capacity;
    }
  }

  bool IsEnough(const Remedy& remedy) {
    if (remedy.count == 0) return false;
    if (remedy.count <= limits_.nodes_max) return FitsWith(NewNodes(remedy));
    out_.complete = false;
    return false;
  }

  void FindNewNodes() {
    Remedy more = FewestLikeOne();
    if (IsEnough(more)) {
      const NodeSnapshot& model = *more.model;
      // Before `more` is moved from.
      const std::string text = absl::StrCat(
          more.count, more.count == 1 ? " more node" : " more nodes", " like ",
          model.name, " (", ResourcesText(model.total, SizeRounding::kUp), ")");
      return Add("MORE_NODES", text, "", std::move(more));
    }
    Remedy other;
    other.model = NodeAskedFor();
    other.count = NodesMissing(FormOf(*other.model), *other.model);
    if (!IsEnough(other)) return;
    const std::string model = NodeText(*other.model);
    const std::string text =
        other.count == 1
            ? absl::StrCat("1 node with ", model)
            : absl::StrCat(other.count, " nodes with ", model, " each");
    Add("OTHER_NODES", text, "", std::move(other));
  }

  // Of those that are known the fewest that could do, and the smallest.
  Remedy FewestLikeOne() {
    Remedy best;
    const auto order = [](int64_t count, const NodeSnapshot& node) {
      return std::make_tuple(count, node.total.Get(kGpu), node.total.Get(kCpu),
                             node.id);
    };
    for (const auto& [form, bucket] : nodes_.index().all().buckets()) {
      if (!FormAllowsIdle(*form, request_)) continue;
      for (const auto& [labels, alike] : bucket.by_labels) {
        const NodeSnapshot& node = *alike.begin()->second;
        const int64_t count = NodesMissing(*form, node);
        if (count == 0 || (best.count > 0 && order(best.count, *best.model) <
                                                 order(count, node))) {
          continue;
        }
        best.model = node;
        best.count = count;
      }
    }
    return best;
  }

  // Unlike all that are known, with room for as few workers as a node takes, or
  // for all where they must share one.
  NodeSnapshot NodeAskedFor() const {
    NodeSnapshot node;
    for (const LabelSelector::Requirement& requirement :
         request_.selector.requirements()) {
      if (requirement.key == kHostLevel) continue;
      if (requirement.op == LabelSelector::Operator::kIn) {
        node.labels[requirement.key] = requirement.values.front();
      } else if (requirement.op == LabelSelector::Operator::kExists) {
        node.labels.try_emplace(requirement.key, "any");
      }
    }
    if (InOneDomain(request_)) {
      node.labels.try_emplace(request_.topology.level, Nearest().first);
    }
    const int64_t workers =
        OnOneNode(request_) ? request_.num_workers : LeastOnANode(request_);
    node.total = request_.per_worker.Times(workers);
    GiveWholeGpus(workers, node);
    return node;
  }

  // As a machine has them: of the model that is asked for, as many as the
  // workers' shares need.
  void GiveWholeGpus(int64_t workers, NodeSnapshot& node) const {
    node.accelerator = request_.accelerator_type;
    const int64_t each = request_.per_worker.Get(kGpu).ten_thousandths();
    int64_t gpus = node.accelerator.empty() ? 0 : 1;
    if (each > 0) {
      const int64_t share = std::max<int64_t>(Amount::kScale / each, 1);
      gpus = each < Amount::kScale ? (workers + share - 1) / share
                                   : workers * each / Amount::kScale;
    }
    node.total.Set(kGpu, Amount::FromUnits(gpus));
    for (int64_t i = 0; i < gpus; ++i) {
      node.devices.push_back({.id = absl::StrCat("gpu", i), .free = {}});
    }
  }

  const NodeTable& nodes_;
  const Holdings& holdings_;
  const GangRequest& request_;
  const RemedyLimits& limits_;
  NodeTrial& trial_;
  int64_t plans_left_;
  Remedies& out_;
  std::map<std::string, Room> rooms_;  // by domain
  GangRequest missing_;                // as Room counts what is missing
};

}  // namespace

std::vector<NodeSnapshot> NewNodes(const Remedy& remedy) {
  std::vector<NodeSnapshot> added;
  for (int64_t i = 0; i < remedy.count; ++i) {
    NodeSnapshot& node = added.emplace_back(*remedy.model);
    // Ids are random, so none is like these.
    std::string bytes(NodeId::kBytes, '\xff');
    for (size_t at = 0; at < 8; ++at) {
      bytes[at] = static_cast<char>((i >> (8 * at)) & 0xff);
    }
    node.id = *NodeId::FromBytes(bytes);
    node.name = absl::StrCat(node.name, "+", i + 1);
    node.available = node.total;
    for (DeviceShare& device : node.devices) {
      device.free = Amount::FromUnits(1);
    }
    node.gate = NodeGate::kOpen;
  }
  return added;
}

void AddClusterRemedies(const NodeTable& nodes, const Holdings& holdings,
                        const GangRequest& request, const RemedyLimits& limits,
                        NodeTrial& trial, int64_t plans, Remedies& remedies) {
  ClusterChanges(nodes, holdings, request, limits, trial, plans, remedies)
      .Find();
}

}  // namespace cohort::head
