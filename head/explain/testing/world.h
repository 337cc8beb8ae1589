#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"

#include "cohort/v1/cluster.pb.h"
#include "common/random.h"
#include "head/explain/diagnosis.h"
#include "head/placement/placement.h"
#include "head/state/attempt_table.h"
#include "head/state/node_table.h"
#include "head/testing/messages.h"

// Small clusters for those who explain, as they are and at random.
namespace cohort::head {

inline Amount Units(double units) { return *Amount::FromDouble(units); }

inline ResourceSet Resources(const std::string& text) {
  return text.empty() ? ResourceSet() : *ParseResources(text);
}

inline Diagnosis DiagnoseFully(const NodeTable& nodes,
                               const AttemptTable& attempts,
                               const GangRequest& request,
                               const DiagnosisLimits& limits = {}) {
  NodeTrial trial(nodes.index());
  return Diagnose(nodes, attempts, request, limits, &trial);
}

// A cluster as a value, from which tables are built again after each change.
class World {
 public:
  struct Node {
    NodeRecord record;
    bool offered = true;
    std::string not_ready;
  };

  NodeRecord& AddNode(const std::string& resources,
                      std::map<std::string, std::string> labels = {}) {
    NodeRecord record;
    record.id = NodeId::New(random_);
    record.node.set_name(absl::StrCat("n", nodes_.size() + 1));
    SetResources(record.node, Resources(resources));
    SetLabels(record.node, std::move(labels));
    const int64_t gpus = Resources(resources).Get(kGpu).WholeUnits();
    for (int64_t g = 0; g < gpus; ++g) {
      AddDevice(record.node, {.id = absl::StrCat(record.node.name(), "-g", g),
                              .kind = "gpu",
                              .model = "NVIDIA H100"});
    }
    nodes_.push_back({.record = std::move(record)});
    return nodes_.back().record;
  }

  // Places a job as the planner does; nothing when it does not fit.
  std::optional<JobId> Run(const GangRequest& request) {
    const Placement placement = PlaceGang(Nodes()->index(), request);
    const Plan* const plan = std::get_if<Plan>(&placement);
    if (plan == nullptr) return std::nullopt;
    AttemptRecord attempt;
    attempt.id = AttemptId::New(random_);
    attempt.job = JobId::New(random_);
    for (const PlannedPart& part : plan->parts) {
      attempt.places.push_back({.node = part.node});
      for (const PlannedRank& rank : part.ranks) {
        attempt.processes.push_back({.slot = rank.rank,
                                     .incarnation = 1,
                                     .node = part.node,
                                     .devices = rank.devices});
      }
    }
    each_[attempt.id] = request.per_worker;
    attempts_.push_back(attempt);
    return attempt.job;
  }

  void EndJob(const JobId& job) {
    std::erase_if(attempts_, [&job](const AttemptRecord& attempt) {
      return attempt.job == job;
    });
  }

  // What the attempt holds on `node`.
  NodeTable::Held HeldOn(const AttemptRecord& attempt,
                         const NodeId& node) const {
    NodeTable::Held held{.each = each_.at(attempt.id), .processes = {}};
    for (const Process& process : attempt.processes) {
      if (process.node != node) continue;
      held.processes.emplace(Incarnation{process.slot, process.incarnation},
                             process.devices);
    }
    return held;
  }

  std::unique_ptr<NodeTable> Nodes() const {
    auto table = std::make_unique<NodeTable>();
    for (const Node& node : nodes_) {
      table->Put(node.record);
      if (node.offered && node.record.state == v1::NODE_STATE_ALIVE) {
        table->Offer(node.record.id);
      }
      if (!node.not_ready.empty())
        table->SetNotReady(node.record.id, node.not_ready);
    }
    for (const AttemptRecord& attempt : attempts_) {
      for (const Place& place : attempt.places) {
        table->Hold(attempt.id, place.node, HeldOn(attempt, place.node));
      }
    }
    return table;
  }

  AttemptTable Attempts() const {
    AttemptTable table;
    for (const AttemptRecord& attempt : attempts_) table.Add(attempt);
    return table;
  }

  bool Holds(const GangRequest& request) const {
    return Fits(Nodes()->index(), request);
  }
  Diagnosis Explain(const GangRequest& request) const {
    return DiagnoseFully(*Nodes(), Attempts(), request);
  }

  std::vector<Node>& nodes() { return nodes_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  std::vector<AttemptRecord>& attempts() { return attempts_; }
  const std::vector<AttemptRecord>& attempts() const { return attempts_; }

 private:
  SeededRandom random_{1};
  std::vector<Node> nodes_;
  std::vector<AttemptRecord> attempts_;
  std::map<AttemptId, ResourceSet> each_;  // what a process of it holds
};

// "3 of GPU held by JOB on 1".
inline std::string HolderText(const std::string& resource, const JobId& job,
                              Amount amount, int64_t nodes) {
  return absl::StrCat(amount.ToString(), " of ", resource, " held by ",
                      job.ToText(), " on ", nodes);
}
inline std::string HolderText(const v1::Holder& holder) {
  return HolderText(holder.resource(), *JobId::FromBytes(holder.job_id()),
                    Amount::FromTenThousandths(holder.amount()),
                    holder.nodes());
}

// "array 6 JOB": elements that wait for the same.
inline std::string ElementText(const std::string& kind, int64_t count,
                               const std::optional<JobId>& first) {
  return absl::StrCat(kind, " ", count, " ",
                      first.has_value() ? first->ToText() : "");
}
inline std::vector<std::string> ElementTexts(
    const v1::ExplainJobResponse& explanation) {
  std::vector<std::string> texts;
  for (const v1::WaitingElements& each : explanation.elements()) {
    const auto first = JobId::FromBytes(each.first_id());
    texts.push_back(
        ElementText(each.kind(), each.count(),
                    first.ok() ? std::optional<JobId>(*first) : std::nullopt));
  }
  return texts;
}

inline GangRequest Gang(
    int workers, const std::string& per_worker,
    PlacementStrategy strategy = v1::PLACEMENT_STRATEGY_PACK) {
  return {.num_workers = workers,
          .per_worker = Resources(per_worker),
          .strategy = strategy};
}

// ---- at random ----

inline int64_t Below(Random& random, uint64_t n) {
  return static_cast<int64_t>(random.Below(n));
}

inline GangRequest RandomRequest(Random& random) {
  const double gpus[] = {0, 0, 0.5, 1, 2};
  GangRequest request;
  request.num_workers = static_cast<int>(1 + random.Below(5));
  request.per_worker.Set(kCpu, Amount::FromUnits(Below(random, 4)));
  request.per_worker.Set(kGpu, Units(gpus[random.Below(5)]));
  request.strategy = static_cast<PlacementStrategy>(1 + random.Below(4));
  const char* selectors[] = {"zone=a", "zone!=a", "zone=b,rack exists",
                             "zone=\"\""};
  if (random.Below(3) == 0) {
    request.selector = *LabelSelector::Parse(selectors[random.Below(4)]);
  }
  if (random.Below(4) == 0) request.tolerations = {{.key = "lab", .value = {}}};
  if (random.Below(6) == 0) request.accelerator_type = "A100";
  const char* levels[] = {"host", "rack", "zone"};
  if (random.Below(3) == 0) {
    request.topology = {.level = levels[random.Below(3)],
                        .required = random.Below(3) != 0};
  }
  return request;
}

inline void AddRandomNode(Random& random, World& world) {
  std::map<std::string, std::string> labels;
  const char* zones[] = {"a", "b", ""};
  if (random.Below(4) != 0) labels["zone"] = zones[random.Below(3)];
  if (random.Below(4) != 0) labels["rack"] = zones[random.Below(3)];
  NodeRecord& node = world.AddNode(
      absl::StrCat("CPU=", 1 + random.Below(6), ",GPU=", random.Below(4)),
      std::move(labels));
  if (random.Below(5) == 0) AddTaint(node.node, "lab");
  if (random.Below(3) == 0) {
    for (Device& device : *node.node.mutable_devices()) {
      device.set_model("NVIDIA A100");
    }
  }
}

inline void Disturb(Random& random, World& world) {
  for (World::Node& node : world.nodes()) {
    const bool holds =
        std::any_of(world.attempts().begin(), world.attempts().end(),
                    [&](const AttemptRecord& attempt) {
                      return PlaceOn(attempt, node.record.id) != nullptr;
                    });
    switch (random.Below(9)) {
      case 3:
        if (!holds) node.record.state = v1::NODE_STATE_DEAD;
        break;
      case 0:
        node.record.node.mutable_drain();
        break;
      case 1:
        node.record.state = v1::NODE_STATE_SUSPECT;
        break;
      case 2:
        node.offered = false;
        break;
      default:
        break;
    }
  }
}

inline World RandomWorld(Random& random) {
  World world;
  const int64_t nodes = 1 + Below(random, 4);
  for (int64_t n = 0; n < nodes; ++n) AddRandomNode(random, world);
  const int64_t jobs = Below(random, 6);
  for (int64_t j = 0; j < jobs; ++j) world.Run(RandomRequest(random));
  Disturb(random, world);
  return world;
}

// Nodes by number, as bits, that take new work again.
inline World Opened(World world, uint64_t which) {
  for (size_t i = 0; i < world.nodes().size(); ++i) {
    if ((which >> i & 1) == 0) continue;
    world.nodes()[i].record.node.clear_drain();
    world.nodes()[i].record.state = v1::NODE_STATE_ALIVE;
    world.nodes()[i].offered = true;
  }
  return world;
}

}  // namespace cohort::head
