#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"

#include "head/explain/remedy.h"
#include "head/placement/candidates.h"
#include "head/placement/refusal.h"

namespace cohort::head {
namespace {

// The domain that the request has to stay in; empty when it need not.
std::string DomainOf(const NodeSnapshot& node, const GangRequest& request) {
  return InOneDomain(request) ? node.labels.at(request.topology.level) : "";
}

int64_t CapacityOf(const NodeSnapshot& node, const GangRequest& request) {
  const NodeForm form = FormOf(node);
  if (!FormAllows(form, request)) return 0;
  return Capacity(form, request.per_worker, request.num_workers);
}

// As many nodes as matter to the request of those that have room for it: of
// nodes that are alike no more than it has workers.  The planner says of them
// what it says of all; changes are tried on them, so they need not be copied
// again for each.
class Copy {
 public:
  Copy(const PlacementIndex& nodes, const GangRequest& request)
      : request_(request) {
    for (const auto& [form, bucket] : nodes.all().buckets()) {
      if (!FormAllows(*form, request) ||
          Capacity(*form, request.per_worker, 1) == 0) {
        continue;
      }
      for (const auto& [labels, alike] : bucket.by_labels) AddSome(alike);
    }
  }

  const Room& room(const std::string& domain) { return rooms_[domain]; }
  bool Fits() const { return head::Fits(index_, request_); }
  void Put(NodeSnapshot node) { index_.Put(std::move(node)); }

  // Undoes Put: what is there now again, or nothing.
  void Restore(const NodeId& id, const NodeSnapshot* now) {
    if (now == nullptr) {
      index_.Remove(id);
    } else {
      index_.Put(*now);
    }
  }

 private:
  void AddSome(const NodesById& alike) {
    int left = request_.num_workers;
    for (const auto& [id, node] : alike) {
      if (!LabelsFit(*node, request_)) continue;
      rooms_[DomainOf(*node, request_)].Add(CapacityOf(*node, request_), 1);
      index_.Put(*node);
      if (--left == 0) break;
    }
  }

  const GangRequest& request_;
  PlacementIndex index_;
  std::map<std::string, Room> rooms_;  // by domain
};

class ClusterChanges {
 public:
  ClusterChanges(const NodeTable& nodes, const Holdings& holdings,
                 const GangRequest& request, const RemedyLimits& limits,
                 PlanBudget& budget, Remedies& remedies)
      : nodes_(nodes),
        holdings_(holdings),
        request_(request),
        limits_(limits),
        budget_(budget),
        remedies_(remedies),
        copy_(nodes.index(), request),
        missing_(request) {
    // A gang that must share a node is packed strictly, whoever says so.
    if (OnOneNode(request))
      missing_.strategy = v1::PLACEMENT_STRATEGY_STRICT_PACK;
  }

  void Find() {
    FindOpened(Remedy::Kind::kNodeReturns);
    FindOpened(Remedy::Kind::kUndrain);
    FindJobs();
    if (!FindMoreNodes()) FindOtherNodes();
    if (budget_.used_up()) remedies_.complete = false;
  }

 private:
  // Workers that lack room now in the domain.
  int64_t MissingIn(const std::string& domain) {
    return copy_.room(domain).MissingFor(missing_);
  }

  bool CopyFits() { return budget_.Take() && copy_.Fits(); }

  // ---- nodes that take no new work now ----

  struct Closed {
    NodeSnapshot opened;
    int64_t capacity = 0;
    bool dead = false;
  };

  // Whether this alone is what keeps the node from taking new work.
  bool Opens(const NodeId& id, Remedy::Kind kind) const {
    const bool is_drained = nodes_.Find(id)->drain.has_value();
    const bool is_there = nodes_.IsOffered(id) &&
                          nodes_.Find(id)->state == v1::NODE_STATE_ALIVE &&
                          nodes_.UnfitBecause(id).empty();
    return kind == Remedy::Kind::kUndrain ? is_drained && is_there
                                          : !is_drained && !is_there;
  }

  // By domain, those that would hold the most first.
  using ClosedNodes = std::map<std::string, std::vector<Closed>>;

  // Those that `takes` wants and whose opening makes room.
  ClosedNodes FindClosed(absl::FunctionRef<bool(const NodeId&)> takes) {
    ClosedNodes closed;
    for (const auto& [form, bucket] : nodes_.index().all().buckets()) {
      if (form->gate == NodeGate::kOpen) continue;
      if (!FormAllowsIdle(*form, request_)) continue;
      for (const auto& [id, node] : bucket.nodes) {
        if (takes(id)) AddClosed(id, /*dead=*/false, closed);
      }
    }
    AddDead(takes, closed);
    for (auto& [domain, list] : closed) {
      std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) {
        return std::tie(b.capacity, a.dead, a.opened.id) <
               std::tie(a.capacity, b.dead, b.opened.id);
      });
    }
    return closed;
  }

  // They are in no index.
  void AddDead(absl::FunctionRef<bool(const NodeId&)> takes,
               ClosedNodes& closed) {
    if (nodes_.CountOf(v1::NODE_STATE_DEAD) == 0) return;
    for (const auto& [id, record] : nodes_.records()) {
      if (record.state == v1::NODE_STATE_DEAD && takes(id)) {
        AddClosed(id, /*dead=*/true, closed);
      }
    }
  }

  void AddClosed(const NodeId& id, bool dead, ClosedNodes& closed) {
    Closed one{.opened = nodes_.Imagine(id, {}), .capacity = 0, .dead = dead};
    if (!LabelsFit(one.opened, request_)) return;
    one.capacity = CapacityOf(one.opened, request_);
    if (one.capacity == 0) return;
    closed[DomainOf(one.opened, request_)].push_back(std::move(one));
  }

  // The fewest are those that hold the most.
  void FindOpened(Remedy::Kind kind) {
    Remedy best{.kind = kind};
    const ClosedNodes all =
        FindClosed([&](const NodeId& id) { return Opens(id, kind); });
    for (const auto& [domain, closed] : all) {
      Remedy remedy{.kind = kind};
      Room room = copy_.room(domain);
      bool fits = false;
      for (const Closed& one : closed) {
        room.Add(one.capacity, 1);
        copy_.Put(one.opened);
        remedy.nodes.push_back(one.opened.id);
        fits = room.Holds(missing_);
        if (fits) break;
      }
      fits = fits && CopyFits();
      for (const NodeId& id : remedy.nodes) copy_.Restore(id, nullptr);
      const bool fewer =
          best.nodes.empty() || remedy.nodes.size() < best.nodes.size();
      if (fits && fewer) best = std::move(remedy);
    }
    if (!best.nodes.empty()) remedies_.found.push_back(std::move(best));
  }

  // ---- jobs that hold what is missing ----

  // Whether there is a plan once the job that holds this has ended.
  bool FitsWithout(const Holding& holding) {
    std::map<NodeId, std::set<AttemptId>> over;
    for (const auto& [node, attempt] : holding.nodes)
      over[node].insert(attempt);
    for (const auto& [node, without] : over) {
      copy_.Put(nodes_.Imagine(node, without));
    }
    const bool fits = CopyFits();
    for (const auto& [node, without] : over) {
      copy_.Restore(node, nodes_.index().Find(node));
    }
    return fits;
  }

  void FindJobs() {
    if (!holdings_.complete) remedies_.complete = false;
    if (const std::optional<JobId> one = FindOneJob()) {
      remedies_.found.push_back({.kind = Remedy::Kind::kJobEnds, .job = *one});
    }
  }

  // The least that the gang lacks wherever it may go.
  int64_t Missing() {
    if (!InOneDomain(request_)) return MissingIn("");
    int64_t least = request_.num_workers;
    for (const auto& [domain, nodes] :
         nodes_.index().DomainsOf(request_.topology.level)) {
      least = std::min(least, MissingIn(domain));
    }
    return least;
  }

  std::optional<JobId> FindOneJob() {
    std::vector<std::pair<JobId, const Holding*>> jobs;
    for (const auto& [job, holding] : holdings_.jobs) {
      jobs.emplace_back(job, &holding);
    }
    std::stable_sort(jobs.begin(), jobs.end(),
                     [](const auto& a, const auto& b) {
                       return a.second->Size() < b.second->Size();
                     });
    const int64_t missing = Missing();
    int tries = 0;
    for (const auto& job : jobs) {
      if (job.second->gain < missing) continue;
      if (++tries > limits_.tries_max) {
        remedies_.complete = false;
        break;
      }
      if (FitsWithout(*job.second)) return job.first;
    }
    return std::nullopt;
  }

  // ---- more nodes ----

  // A kind of node that could hold workers were it idle.
  struct Model {
    const NodeSnapshot* node;
    int64_t capacity;  // of an idle one
    int64_t count;     // how many it takes
  };

  // How many idle nodes of this capacity are missing; none when it cannot do.
  std::optional<int64_t> NodesMissing(int64_t capacity, int64_t missing) const {
    switch (missing_.strategy) {
      case v1::PLACEMENT_STRATEGY_STRICT_PACK:
        if (capacity < request_.num_workers) return std::nullopt;
        return 1;
      case v1::PLACEMENT_STRATEGY_STRICT_SPREAD:
        return missing;
      default:
        return (missing + capacity - 1) / capacity;
    }
  }

  std::optional<Model> BestModel() {
    std::optional<Model> best;
    for (const auto& [form, bucket] : nodes_.index().all().buckets()) {
      if (!FormAllowsIdle(*form, request_)) continue;
      const int64_t capacity =
          IdleCapacity(*form, request_.per_worker, request_.num_workers);
      if (capacity == 0) continue;
      for (const auto& [labels, alike] : bucket.by_labels) {
        const NodeSnapshot& node = *alike.begin()->second;
        if (!LabelsFit(node, request_)) continue;
        const std::optional<int64_t> count =
            NodesMissing(capacity, MissingIn(DomainOf(node, request_)));
        if (!count.has_value()) continue;
        const auto order = [](const Model& model) {
          return std::make_tuple(model.count, model.node->total.Get(kGpu),
                                 model.node->total.Get(kCpu), model.node->id);
        };
        const Model model{&node, capacity, *count};
        if (!best.has_value() || order(model) < order(*best)) best = model;
      }
    }
    return best;
  }

  bool AddIfEnough(Remedy remedy) {
    if (remedy.count > limits_.nodes_max) {
      remedies_.complete = false;
      return false;
    }
    const std::vector<NodeSnapshot> added = NewNodes(remedy);
    for (const NodeSnapshot& node : added) copy_.Put(node);
    const bool fits = CopyFits();
    for (const NodeSnapshot& node : added) copy_.Restore(node.id, nullptr);
    if (fits) remedies_.found.push_back(std::move(remedy));
    return fits;
  }

  bool FindMoreNodes() {
    // A new node has another name.
    if (SelectsByName(request_.selector)) return false;
    const std::optional<Model> model = BestModel();
    if (!model.has_value()) return false;
    Remedy remedy{.kind = Remedy::Kind::kMoreNodes,
                  .subject = model->node->name};
    remedy.count = model->count;
    remedy.model = *model->node;
    return AddIfEnough(std::move(remedy));
  }

  // ---- nodes unlike those that are known ----

  // A value for each label that the request asks for.
  Labels LabelsAskedFor() const {
    Labels labels;
    for (const LabelSelector::Requirement& requirement :
         request_.selector.requirements()) {
      if (requirement.key == kHostLevel) continue;
      if (requirement.op == LabelSelector::Operator::kIn) {
        labels[requirement.key] = requirement.values.front();
      } else if (requirement.op == LabelSelector::Operator::kExists) {
        labels.try_emplace(requirement.key, "any");
      }
    }
    return labels;
  }

  // The domain that lacks the least; a new one when there is none.
  std::string DomainToJoin() {
    std::string best = "new";
    int64_t least = request_.num_workers;
    for (const auto& [domain, nodes] :
         nodes_.index().DomainsOf(request_.topology.level)) {
      const int64_t missing = MissingIn(domain);
      if (missing < least) {
        least = missing;
        best = domain;
      }
    }
    return best;
  }

  // Each with room for one worker, or for all where they must share a node.
  void FindOtherNodes() {
    if (SelectsByName(request_.selector)) return;
    NodeSnapshot node;
    node.labels = LabelsAskedFor();
    if (InOneDomain(request_)) {
      node.labels.try_emplace(request_.topology.level, DomainToJoin());
    }
    if (!LabelsFit(node, request_)) return;
    node.total = request_.per_worker.Times(
        OnOneNode(request_) ? request_.num_workers : 1);
    GiveWholeGpus(node);
    const std::optional<int64_t> count = NodesMissing(
        IdleCapacity(FormOf(node), request_.per_worker, request_.num_workers),
        MissingIn(DomainOf(node, request_)));
    if (!count.has_value()) return;
    Remedy remedy{.kind = Remedy::Kind::kOtherNodes};
    remedy.count = *count;
    remedy.model = std::move(node);
    AddIfEnough(std::move(remedy));
  }

  // As a machine has them: of the model that is asked for, as many as all its
  // workers' shares need.
  void GiveWholeGpus(NodeSnapshot& node) const {
    node.accelerator = request_.accelerator_type;
    const int64_t each = request_.per_worker.Get(kGpu).ten_thousandths();
    int64_t gpus = node.accelerator.empty() ? 0 : 1;
    if (each > 0) {
      const int64_t workers = OnOneNode(request_) ? request_.num_workers : 1;
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
  PlanBudget& budget_;
  Remedies& remedies_;
  Copy copy_;
  GangRequest missing_;  // as Room counts what is missing
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
                        PlanBudget& budget, Remedies& remedies) {
  ClusterChanges(nodes, holdings, request, limits, budget, remedies).Find();
}

}  // namespace cohort::head
