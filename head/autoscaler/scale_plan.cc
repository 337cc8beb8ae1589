#include "head/autoscaler/scale_plan.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "common/node_labels.h"
#include "head/placement/candidates.h"
#include "head/placement/placement.h"
#include "head/placement/placement_index.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

// Of a node that is planned, so that equal inputs give equal plans.
NodeId PlannedId(uint64_t number) {
  std::string bytes(NodeId::kBytes, '\xff');
  for (int i = 0; i < 8; ++i) {
    bytes[NodeId::kBytes - 1 - static_cast<size_t>(i)] =
        static_cast<char>(number >> (8 * i));
  }
  return *NodeId::FromBytes(bytes);
}

bool WantsGpus(const ResourceSet& resources) {
  return !resources.Get(kGpu).IsZero();
}

// As if nothing ran there.
NodeSnapshot Idle(NodeSnapshot node) {
  node.available = node.total;
  for (DeviceShare& device : node.devices) {
    if (device.fenced.IsZero()) device.free = kWholeDevice;
  }
  return node;
}

// What a part of a plan leaves of its node.
NodeSnapshot After(NodeSnapshot node, const PlannedPart& part,
                   const ResourceSet& per_worker) {
  const bool took = node.available.Take(
      per_worker.Times(static_cast<int64_t>(part.ranks.size())));
  COHORT_CHECK(took);
  for (const PlannedRank& rank : part.ranks) {
    for (const auto& [id, amount] : rank.devices) {
      for (DeviceShare& device : node.devices) {
        if (device.id == id) device.free -= amount;
      }
    }
  }
  return node;
}

// What one plan may cost: nodes that are tried and places that are looked for.
// Asks that come after that wait for the next plan.
constexpr int64_t kWorkMax = 10'000;

// One plan while it is made.
class Planner {
 public:
  explicit Planner(const ScaleInput& input) : input_(input) {
    for (const ScaleNode& each : input.nodes) {
      index_.Put(WithReleases(each));
      if (each.type.empty()) continue;
      ++total_;
      ++counts_[each.type];
      if (!each.is_launching) continue;
      ++launching_;
      types_of_[each.node->id] = each.type;
    }
    for (const ScaleType& each : input.types) {
      total_ += each.ending;
      counts_[each.type->name()] += each.ending;
    }
  }

  ScalePlan Make() {
    for (const ScaleType& each : input_.types) FillUp(each);
    for (const ScaleAsk& ask : input_.asks) Serve(ask);
    MakeRoom();
    EndIdle();
    return std::move(plan_);
  }

 private:
  struct Choice {
    std::map<const v1::NodeType*, int> nodes;
    // The smaller the better.
    std::tuple<bool, double, int, ResourceSet> cost;
  };

  // ---- what time limits free ----

  struct Soon {
    ResourceSet now;  // what is free without that
    ScalePlan::Awaited last;
  };

  // As it will be when a node that is launched now would be there.
  NodeSnapshot WithReleases(const ScaleNode& node) {
    NodeSnapshot soon = *node.node;
    for (const ScaleNode::Release& each : node.releases) {
      if (each.in <= absl::ZeroDuration() || each.in > input_.launch_time ||
          !node.node->overdrawn.empty()) {
        continue;
      }
      soon.available.Add(each.resources);
      for (DeviceShare& device : soon.devices) {
        const auto freed = each.devices.find(device.id);
        if (freed != each.devices.end() && device.fenced.IsZero()) {
          device.free += freed->second;
        }
      }
      Soon& note = soon_[soon.id];
      note.now = node.node->available;
      if (each.in >= note.last.in) {
        note.last = {each.in, each.job, node.node->name};
      }
    }
    return soon;
  }

  void NoteAwaited(const ScaleAsk& ask, const Plan& plan) {
    const ScalePlan::Awaited* last = nullptr;
    for (const PlannedPart& part : plan.parts) {
      const auto soon = soon_.find(part.node);
      if (soon == soon_.end() ||
          soon->second.now.Take(ask.request->per_worker.Times(
              static_cast<int64_t>(part.ranks.size())))) {
        continue;
      }
      if (last == nullptr || soon->second.last.in > last->in) {
        last = &soon->second.last;
      }
    }
    if (last == nullptr) return;
    ScalePlan::Awaited& awaited = plan_.awaited[ask.job];
    awaited = *last;
    KeepForLater(*ask.request);
  }

  // ---- nodes that are added ----

  // Whose ask; nil: nobody's.
  struct AskRef {
    JobId job;
    int first = -1;
  };

  int RoomFor(const ScaleType& type) const {
    if (type.backs_off || total_ >= input_.max_nodes) return 0;
    const auto found = counts_.find(type.type->name());
    const size_t count = found == counts_.end() ? 0 : found->second;
    if (count >= type.type->max()) return 0;
    return static_cast<int>(
        std::min(type.type->max() - count, input_.max_nodes - total_));
  }

  void Launch(const v1::NodeType& type, const AskRef& ask,
              const std::string& why) {
    NodeSnapshot node = NodeOfType(type, PlannedId(++planned_));
    types_of_[node.id] = type.name();
    index_.Put(node);
    added_.push_back(std::move(node));
    ++total_;
    ++launching_;
    ++counts_[type.name()];
    plan_.launches.push_back({type.name(), ask.job, ask.first, why});
  }

  void FillUp(const ScaleType& type) {
    while (!type.backs_off && counts_[type.type->name()] < type.type->min() &&
           total_ < input_.max_nodes) {
      Launch(*type.type, {}, "its type's min");
    }
  }

  using Nodes = std::map<const v1::NodeType*, int>;

  // What one request finds without what is to be launched for it; nothing where
  // that does not say whether it fits.
  struct Found {
    Room room;
    std::map<const v1::NodeType*, int64_t> capacities;  // of a node of each
  };

  void LookFor(const GangRequest& request) {
    found_.reset();
    if (IsBoundToADomain(request) || SelectsByName(request.selector)) return;
    Fit fit(request);
    found_ = Found{.room = RoomIn(index_.all(), fit, /*idle=*/false)};
    for (const ScaleType& each : input_.types) {
      if (!Holds(*each.type, request)) continue;
      const NodeForm& form = ModelOf(*each.type).form;
      found_->capacities[each.type] =
          FormAllows(form, request) ? Capacity(form, request) : 0;
    }
  }

  // Whether it fits with these: by the planner's own sum where that says all.
  bool FitsWith(const GangRequest& request, const Nodes& nodes) {
    if (!found_.has_value()) return FitsAmong(request, nodes);
    Room room = found_->room;
    for (const auto& [type, count] : nodes) {
      room.Add(found_->capacities.at(type), count);
    }
    return room.Holds(request);
  }

  // The same by trying: they go again.
  bool FitsAmong(const GangRequest& request, const Nodes& nodes) {
    std::vector<NodeId> tried;
    uint64_t number = planned_;
    for (const auto& [type, count] : nodes) {
      NodeSnapshot node = Model(*type);
      for (int i = 0; i < count; ++i) {
        node.id = PlannedId(++number);
        tried.push_back(node.id);
        index_.Put(node);
      }
      work_ += count;
    }
    const bool fits = Fits(index_, request);
    for (const NodeId& id : tried) index_.Remove(id);
    return fits;
  }

  struct NodeModel {
    NodeSnapshot node;
    NodeForm form;
  };

  const NodeModel& ModelOf(const v1::NodeType& type) {
    const auto found = models_.find(&type);
    if (found != models_.end()) return found->second;
    NodeSnapshot node = NodeOfType(type, PlannedId(0));
    NodeForm form = FormOf(node);
    return models_.emplace(&type, NodeModel{std::move(node), std::move(form)})
        .first->second;
  }
  const NodeSnapshot& Model(const v1::NodeType& type) {
    return ModelOf(type).node;
  }

  bool Holds(const v1::NodeType& type, const GangRequest& request) {
    const auto& [node, form] = ModelOf(type);
    return LabelsAllow(node.labels, request.selector) &&
           HostAllows(node, request.selector) && Capacity(form, request) > 0;
  }

  void Price(const GangRequest& request, Choice& choice) {
    bool wastes_gpus = false;
    double cost = 0;
    int count = 0;
    ResourceSet size;
    for (const auto& [type, nodes] : choice.nodes) {
      const NodeSnapshot& node = Model(*type);
      wastes_gpus |= WantsGpus(node.total) && !WantsGpus(request.per_worker);
      cost += type->cost() * nodes;
      count += nodes;
      size.Add(node.total.Times(nodes));
    }
    choice.cost = {wastes_gpus, cost, count, std::move(size)};
  }

  // The fewest nodes of one type.
  std::optional<Choice> Of(const ScaleType& type, const GangRequest& request) {
    const int room = std::min(RoomFor(type), request.num_workers);
    if (room <= 0 || !Holds(*type.type, request)) return std::nullopt;
    int enough = 1;
    while (enough < room && !FitsWith(request, {{type.type, enough}})) {
      enough = std::min(2 * enough, room);
    }
    if (!FitsWith(request, {{type.type, enough}})) return std::nullopt;
    int few = enough / 2;
    while (enough - few > 1) {
      const int middle = few + (enough - few) / 2;
      (FitsWith(request, {{type.type, middle}}) ? enough : few) = middle;
    }
    Choice choice{.nodes = {{type.type, enough}}, .cost = {}};
    Price(request, choice);
    return choice;
  }

  // As many of each type as there may be, then fewer of the dearest as long as
  // the rest does.
  std::optional<Choice> OfSeveral(const GangRequest& request) {
    Choice choice;
    size_t left = input_.max_nodes - std::min(total_, input_.max_nodes);
    std::vector<const v1::NodeType*> by_cost;
    for (const ScaleType& each : ByCost()) {
      if (!Holds(*each.type, request)) continue;
      const int count =
          std::min({RoomFor(each), request.num_workers,
                    static_cast<int>(std::min<size_t>(left, INT32_MAX))});
      if (count <= 0) continue;
      choice.nodes[each.type] = count;
      left -= static_cast<size_t>(count);
      by_cost.push_back(each.type);
    }
    if (choice.nodes.empty() || !FitsWith(request, choice.nodes)) {
      return std::nullopt;
    }
    for (auto type = by_cost.rbegin(); type != by_cost.rend(); ++type) {
      int& count = choice.nodes[*type];
      int most = count;
      int few = -1;  // too few
      while (most - few > 1) {
        count = few + (most - few) / 2;
        (FitsWith(request, choice.nodes) ? most : few) = count;
      }
      count = most;
    }
    std::erase_if(choice.nodes, [](const auto& each) { return !each.second; });
    Price(request, choice);
    return choice;
  }

  std::vector<ScaleType> ByCost() const {
    std::vector<ScaleType> types = input_.types;
    std::stable_sort(types.begin(), types.end(),
                     [](const ScaleType& a, const ScaleType& b) {
                       return a.type->cost() < b.type->cost();
                     });
    return types;
  }

  // Whether nodes with which it fits are on their way now.
  bool LaunchFor(const GangRequest& request, const AskRef& ask,
                 const std::string& why) {
    // Room only shrinks while a plan is made.
    if (refused_.contains(request)) return false;
    const bool is_launched = TryLaunchFor(request, ask, why);
    if (!is_launched) refused_[request] = WhyNot(request);
    return is_launched;
  }

  bool TryLaunchFor(const GangRequest& request, const AskRef& ask,
                    const std::string& why) {
    if (work_ >= kWorkMax) return false;
    if (launching_ > 0 && launching_ >= input_.launching_max) {
      is_slowed_ = true;
      return false;
    }
    LookFor(request);
    work_ += static_cast<int64_t>(input_.types.size());
    std::optional<Choice> best;
    for (const ScaleType& type : input_.types) {
      std::optional<Choice> choice = Of(type, request);
      if (choice.has_value() &&
          (!best.has_value() || choice->cost < best->cost)) {
        best = std::move(choice);
      }
    }
    if (!best.has_value()) best = OfSeveral(request);
    if (!best.has_value()) return false;
    if (found_.has_value() && !FitsAmong(request, best->nodes)) return false;
    const auto count = static_cast<size_t>(std::get<2>(best->cost));
    // What one ask needs is launched whole, or the gang would never come.
    if (launching_ > 0 && launching_ + count > input_.launching_max) {
      is_slowed_ = true;
      return false;
    }
    for (const auto& [type, nodes] : best->nodes) {
      for (int i = 0; i < nodes; ++i) Launch(*type, ask, why);
    }
    return true;
  }

  std::string WhyNot(const GangRequest& request) {
    if (work_ >= kWorkMax) {
      KeepForLater(request);
      return "others come first (it is looked at again)";
    }
    if (std::exchange(is_slowed_, false)) {
      KeepForLater(request);
      return "as many nodes are on their way as may be at once";
    }
    bool is_full = false;
    std::string failing;
    for (const ScaleType& each : input_.types) {
      if (!Holds(*each.type, request)) continue;
      if (each.backs_off) {
        failing = each.type->name();
      } else {
        is_full = true;
      }
    }
    if (!failing.empty()) KeepForLater(request);
    if (is_full) {
      return "the node types that hold it have no more nodes to give (raise "
             "max or max_nodes)";
    }
    if (!failing.empty()) {
      return absl::StrCat("launches of node type ", failing,
                          " fail; it is tried again");
    }
    return "no node type of the cluster file holds it";
  }

  // It will be served soon: nodes that may be a part of that stay.
  void KeepForLater(const GangRequest& request) {
    for (const ScaleType& each : input_.types) {
      if (Holds(*each.type, request)) kept_.insert(each.type->name());
    }
  }

  // ---- what is asked for ----

  void Serve(const ScaleAsk& ask) {
    const GangRequest& request = *ask.request;
    if (!request.fault.empty()) return;
    // As an equal one, for which there was no room either.
    if (const auto no = refused_.find(request); no != refused_.end()) {
      plan_.unserved.push_back({ask.job, "", no->second});
      return;
    }
    ++work_;
    std::optional<Plan> plan = Place(request);
    if (!plan.has_value() &&
        LaunchFor(request, {ask.job, ask.first}, Describe(request))) {
      plan = Place(request);
    }
    if (!plan.has_value()) {
      plan_.unserved.push_back({ask.job, "", refused_.at(request)});
      return;
    }
    NoteAwaited(ask, *plan);
    for (const PlannedPart& part : plan->parts) {
      const auto launching = types_of_.find(part.node);
      if (launching == types_of_.end()) continue;
      ++plan_.served[ask.job][launching->second];
    }
  }

  std::optional<Plan> Place(const GangRequest& request) {
    // What is in the way costs more to find.
    if (!Fits(index_, request)) return std::nullopt;
    Placement placement = PlaceGang(index_, request);
    if (!std::holds_alternative<Plan>(placement)) return std::nullopt;
    Plan plan = std::get<Plan>(std::move(placement));
    for (const PlannedPart& part : plan.parts) {
      needed_.insert(part.node);
      index_.Put(After(*index_.Find(part.node), part, request.per_worker));
    }
    return plan;
  }

  // Beside what waits, and over what is there already, also where it is taken.
  void MakeRoom() {
    if (input_.wanted.empty()) return;
    for (const ScaleNode& each : input_.nodes) index_.Put(Idle(*each.node));
    for (const NodeSnapshot& each : added_) index_.Put(each);
    for (const WantedRoom& wanted : input_.wanted) MakeRoom(wanted);
  }

  // All of it at once where that can be, else as much as can be.
  void MakeRoom(const WantedRoom& wanted) {
    const std::string why = absl::StrCat("requested as ", wanted.name);
    GangRequest request;
    request.per_worker = wanted.bundle;
    request.ranks_per_node_max = INT32_MAX;
    auto left = static_cast<int>(std::min<int64_t>(wanted.count, INT32_MAX));
    for (int part = left; part > 0 && work_ < kWorkMax;) {
      ++work_;
      request.num_workers = part;
      if (Place(request).has_value() ||
          (LaunchFor(request, {}, why) && Place(request).has_value())) {
        left -= part;
        part = std::min(part, left);
      } else {
        part /= 2;
      }
    }
    if (left == 0) return;
    request.num_workers = 1;
    const auto refused = refused_.find(request);
    plan_.unserved.push_back(
        {JobId(), wanted.name,
         refused == refused_.end() ? WhyNot(request) : refused->second});
  }

  void EndIdle() {
    // What was not looked at may need any of them.
    if (work_ >= kWorkMax) return;
    // Rather one that is not there yet.
    for (const bool is_launching : {true, false}) EndIdle(is_launching);
  }

  void EndIdle(bool is_launching) {
    for (const ScaleNode& each : input_.nodes) {
      if (!each.may_go || each.is_launching != is_launching ||
          needed_.contains(each.node->id) || kept_.contains(each.type)) {
        continue;
      }
      size_t kept = 0;  // those on their way out do not count here
      for (const ScaleType& type : input_.types) {
        if (type.type->name() == each.type) {
          kept = type.type->min() + type.ending;
        }
      }
      if (counts_[each.type] <= kept) continue;
      --counts_[each.type];
      plan_.ending.push_back(each.node->id);
    }
  }

  const ScaleInput& input_;
  ScalePlan plan_;
  PlacementIndex index_;
  std::vector<NodeSnapshot> added_;
  std::map<NodeId, std::string> types_of_;  // of nodes on their way
  std::map<NodeId, Soon> soon_;  // nodes with room that is not free yet
  std::set<NodeId> needed_;
  std::map<std::string, size_t> counts_;  // those that end too
  size_t total_ = 0;
  size_t launching_ = 0;
  uint64_t planned_ = 0;
  bool is_slowed_ = false;
  int64_t work_ = 0;
  std::map<const v1::NodeType*, NodeModel> models_;
  std::optional<Found> found_;
  std::map<GangRequest, std::string> refused_;  // why
  std::set<std::string> kept_;                  // types of which none ends now
};

}  // namespace

NodeSnapshot NodeOfType(const v1::NodeType& type, const NodeId& id) {
  NodeSnapshot node;
  node.id = id;
  node.name = absl::StrCat("new-", type.name());
  node.total = rpc::FromWire(type.resources()).value_or(ResourceSet());
  node.available = node.total;
  const int64_t gpus = node.total.Get(kGpu).WholeUnits();
  for (int64_t i = 0; i < gpus; ++i) {
    node.devices.push_back({.id = absl::StrCat(i), .free = kWholeDevice});
  }
  for (const auto& [key, value] : type.labels()) node.labels[key] = value;
  node.labels[kNodeTypeLabel] = type.name();
  for (const v1::Taint& taint : type.taints()) {
    node.taints.push_back(rpc::FromWire(taint));
  }
  std::sort(node.taints.begin(), node.taints.end());
  node.accelerator = type.accelerator_type();
  return node;
}

ScalePlan PlanScale(const ScaleInput& input) { return Planner(input).Make(); }

}  // namespace cohort::head
