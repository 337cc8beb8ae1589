// The plan over random clusters and demand: within its limits, whole, and at
// rest once it is carried out.

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gtest/gtest.h"

#include "common/random.h"
#include "common/testing/seed.h"
#include "head/autoscaler/scale_plan.h"
#include "head/placement/testing/placement_fixture.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

class Cluster {
 public:
  explicit Cluster(uint64_t seed) : random_(seed) {
    const int types = 1 + Below(4);
    for (int i = 0; i < types; ++i) {
      v1::NodeType& type = types_.emplace_back();
      type.set_name(absl::StrCat("t", i));
      ResourceSet resources;
      resources.Set(kCpu, Amount::FromUnits(1 + Below(16)));
      if (Below(3) == 0) resources.Set(kGpu, Amount::FromUnits(1 + Below(4)));
      *type.mutable_resources() = rpc::ToWire(resources);
      type.set_max(static_cast<uint32_t>(Below(8)));
      type.set_min(
          static_cast<uint32_t>(Below(static_cast<int>(type.max()) + 1)));
      type.set_cost(1 + Below(5));
    }
    max_nodes_ = static_cast<size_t>(1 + Below(20));
  }

  void ChangeDemand() {
    asks_.clear();
    const int asks = Below(12);
    for (int i = 0; i < asks; ++i) {
      GangRequest request;
      request.num_workers = 1 + Below(6);
      request.per_worker.Set(kCpu, Amount::FromUnits(1 + Below(6)));
      if (Below(4) == 0) {
        request.per_worker.Set(kGpu, Amount::FromUnits(1 + Below(2)));
      }
      request.strategy = static_cast<PlacementStrategy>(1 + Below(4));
      asks_.push_back(
          {.request = std::make_shared<const GangRequest>(request)});
    }
    wanted_.clear();
    for (int i = Below(3); i > 0; --i) {
      ResourceSet bundle;
      bundle.Set(kCpu, Amount::FromUnits(1 + Below(4)));
      wanted_.push_back({absl::StrCat("w", i), bundle, 1 + Below(4)});
    }
  }

  ScalePlan Plan() const {
    ScaleInput input{.nodes = nodes_,
                     .asks = asks_,
                     .wanted = wanted_,
                     .max_nodes = max_nodes_,
                     .launching_max = 1'000,
                     .launch_time = absl::Minutes(1)};
    for (const v1::NodeType& type : types_) {
      input.types.push_back({.type = &type});
    }
    return PlanScale(input);
  }

  // Some nodes are in use, and free a part of that by time limits, in up to
  // `in`.
  void UseSome(absl::Duration in) {
    for (ScaleNode& each : nodes_) {
      NodeSnapshot node = *each.node;
      const ResourceSet free = node.available;
      const int64_t cpus = free.Get(kCpu).WholeUnits();
      if (cpus == 0) continue;
      ResourceSet used;
      used.Set(kCpu, Amount::FromUnits(1 + Below(static_cast<int>(cpus))));
      if (!node.available.Take(used)) continue;
      each.node = std::make_shared<const NodeSnapshot>(node);
      each.releases.push_back({.in = in * (1 + Below(10)) / 10,
                               .job = "limited",
                               .resources = used,
                               .devices = {}});
    }
  }
  // As if that were free already.
  void ReleaseAll() {
    for (ScaleNode& each : nodes_) {
      NodeSnapshot node = *each.node;
      for (const auto& release : std::exchange(each.releases, {})) {
        node.available.Add(release.resources);
      }
      each.node = std::make_shared<const NodeSnapshot>(node);
    }
  }

  void CarryOut(const ScalePlan& plan) {
    std::erase_if(nodes_, [&](const ScaleNode& node) {
      return std::find(plan.ending.begin(), plan.ending.end(), node.node->id) !=
             plan.ending.end();
    });
    for (const auto& launch : plan.launches) {
      for (const v1::NodeType& type : types_) {
        if (type.name() != launch.type) continue;
        nodes_.push_back({.node = std::make_shared<const NodeSnapshot>(
                              NodeOfType(type, NodeId::New(random_))),
                          .type = type.name(),
                          .may_go = true});
      }
    }
  }

  std::string TypeOf(const NodeId& id) const {
    for (const ScaleNode& node : nodes_) {
      if (node.node->id == id) return node.type;
    }
    return "";
  }

  void CheckLimits() const {
    EXPECT_LE(nodes_.size(), max_nodes_);
    std::map<std::string, uint32_t> counts;
    for (const ScaleNode& node : nodes_) ++counts[node.type];
    for (const v1::NodeType& type : types_) {
      EXPECT_LE(counts[type.name()], type.max());
    }
  }

 private:
  int Below(int n) {
    return static_cast<int>(random_.Uint64() % static_cast<uint64_t>(n));
  }

  SeededRandom random_;
  std::vector<v1::NodeType> types_;
  std::vector<ScaleNode> nodes_;
  std::vector<ScaleAsk> asks_;
  std::vector<WantedRoom> wanted_;
  size_t max_nodes_ = 0;
};

TEST(ScalePlanPropertyTest, ConvergesWithinItsLimits) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Cluster cluster(seed);
    for (int change = 0; change < 5; ++change) {
      cluster.ChangeDemand();
      // What one plan ends may make room, within max_nodes, for what the next
      // one launches.
      std::set<std::string> ended;
      for (int i = 0; i < 8; ++i) {
        const ScalePlan plan = cluster.Plan();
        for (const auto& launch : plan.launches) {
          EXPECT_FALSE(ended.contains(launch.type)) << "back and forth";
        }
        for (const NodeId& node : plan.ending)
          ended.insert(cluster.TypeOf(node));
        cluster.CarryOut(plan);
        cluster.CheckLimits();
      }
      const ScalePlan plan = cluster.Plan();
      EXPECT_TRUE(plan.launches.empty()) << plan.launches.size();
      EXPECT_TRUE(plan.ending.empty()) << plan.ending.size();
    }
  }
}

// SC-10: what is free in time counts as what is free now.
TEST(ScalePlanPropertyTest, LaunchesAsIfTimeLimitsHadPassed) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Cluster cluster(seed);
    cluster.ChangeDemand();
    cluster.CarryOut(cluster.Plan());
    cluster.ChangeDemand();
    cluster.UseSome(absl::Minutes(1));
    const ScalePlan plan = cluster.Plan();
    cluster.ReleaseAll();
    const ScalePlan later = cluster.Plan();
    EXPECT_EQ(plan.launches.size(), later.launches.size());
    EXPECT_EQ(plan.unserved.size(), later.unserved.size());
    EXPECT_TRUE(later.awaited.empty());
    for (const NodeId& node : plan.ending) {
      EXPECT_TRUE(std::count(later.ending.begin(), later.ending.end(), node));
    }
  }
}

}  // namespace
}  // namespace cohort::head
