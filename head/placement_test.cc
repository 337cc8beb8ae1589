#include "head/placement.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "common/resources.h"
#include "common/testing/seed.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

Amount Units(double units) { return *Amount::FromDouble(units); }

ResourceSet Resources(const std::string& text) {
  return text.empty() ? ResourceSet() : *ParseResources(text);
}

NodeId Id(int n) {
  std::string bytes(NodeId::kBytes, '\0');
  bytes.back() = static_cast<char>(n);
  return *NodeId::FromBytes(bytes);
}

// An idle node whose GPUs are named n<number>-g<index>.
NodeSnapshot Node(int number, const std::string& resources) {
  NodeSnapshot node;
  node.id = Id(number);
  node.name = absl::StrCat("n", number);
  node.total = Resources(resources);
  node.available = node.total;
  for (int64_t g = 0; g < node.total.Get(kGpu).WholeUnits(); ++g) {
    node.devices.push_back(
        {.id = absl::StrCat(node.name, "-g", g), .free = Units(1)});
  }
  return node;
}

// Takes `amount` of GPU `index`.
void Use(NodeSnapshot& node, size_t index, double amount) {
  ResourceSet used;
  used.Set(kGpu, Units(amount));
  ASSERT_TRUE(node.available.Take(used));
  node.devices[index].free -= Units(amount);
}

GangRequest Gang(int workers, const std::string& per_worker,
                 PlacementStrategy strategy = PlacementStrategy::kPack) {
  return {.num_workers = workers,
          .per_worker = Resources(per_worker),
          .strategy = strategy};
}

Plan MustPlace(const std::vector<NodeSnapshot>& nodes,
               const GangRequest& request) {
  Placement placement = PlaceGang(nodes, request);
  if (const auto* refusal = std::get_if<Refusal>(&placement)) {
    ADD_FAILURE() << refusal->reason;
    return Plan();
  }
  return std::get<Plan>(std::move(placement));
}

Refusal MustRefuse(const std::vector<NodeSnapshot>& nodes,
                   const GangRequest& request) {
  Placement placement = PlaceGang(nodes, request);
  if (std::holds_alternative<Plan>(placement)) {
    ADD_FAILURE() << "placed";
    return Refusal();
  }
  return std::get<Refusal>(std::move(placement));
}

// (node, workers) in the order of node ranks.
std::vector<std::pair<NodeId, size_t>> Shape(const Plan& plan) {
  std::vector<std::pair<NodeId, size_t>> shape;
  for (const PlannedPart& part : plan.parts) {
    shape.emplace_back(part.node, part.ranks.size());
  }
  return shape;
}

TEST(PlacementTest, PackTakesTheSmallestNodeThatHoldsTheGang) {
  const Plan plan =
      MustPlace({Node(1, "CPU=16"), Node(2, "CPU=4"), Node(3, "CPU=2")},
                Gang(3, "CPU=1"));

  EXPECT_THAT(Shape(plan), ElementsAre(Pair(Id(2), 3)));
}

TEST(PlacementTest, PackTakesAsFewNodesAsCanBe) {
  const Plan plan =
      MustPlace({Node(1, "CPU=1"), Node(2, "CPU=4"), Node(3, "CPU=2"),
                 Node(4, "CPU=1"), Node(5, "CPU=1")},
                Gang(5, "CPU=1"));

  EXPECT_THAT(Shape(plan), ElementsAre(Pair(Id(2), 4), Pair(Id(1), 1)));
}

TEST(PlacementTest, SpreadIsAsEvenAsTheNodesAllow) {
  const Plan plan =
      MustPlace({Node(1, "CPU=8"), Node(2, "CPU=1"), Node(3, "CPU=8")},
                Gang(6, "CPU=1", PlacementStrategy::kSpread));

  EXPECT_THAT(Shape(plan),
              ElementsAre(Pair(Id(1), 3), Pair(Id(3), 2), Pair(Id(2), 1)));
}

TEST(PlacementTest, StrictPackIsOneNodeOrNone) {
  const auto request = Gang(3, "CPU=1", PlacementStrategy::kStrictPack);

  EXPECT_THAT(Shape(MustPlace({Node(1, "CPU=2"), Node(2, "CPU=3")}, request)),
              ElementsAre(Pair(Id(2), 3)));
  EXPECT_THAT(MustRefuse({Node(1, "CPU=2"), Node(2, "CPU=2")}, request).reason,
              HasSubstr("room for 2 of 3 workers on one node"));
}

TEST(PlacementTest, StrictSpreadIsANodeEachOrNone) {
  const auto request = Gang(2, "CPU=1", PlacementStrategy::kStrictSpread);

  EXPECT_THAT(
      Shape(MustPlace({Node(1, "CPU=8"), Node(2, "CPU=2"), Node(3, "CPU=1")},
                      request)),
      ElementsAre(Pair(Id(2), 1), Pair(Id(3), 1)));
  EXPECT_THAT(MustRefuse({Node(1, "CPU=8")}, request).reason,
              HasSubstr("room on 1 of the 2 different nodes"));
}

TEST(PlacementTest, RanksRunThroughTheNodesInTheirOrder) {
  const Plan plan =
      MustPlace({Node(1, "CPU=2"), Node(2, "CPU=3")}, Gang(5, "CPU=1"));

  ASSERT_EQ(plan.parts.size(), 2u);
  std::vector<std::pair<int, int>> ranks;
  for (const PlannedPart& part : plan.parts) {
    for (const PlannedRank& rank : part.ranks) {
      ranks.emplace_back(rank.rank, rank.local_rank);
    }
  }
  EXPECT_THAT(ranks, ElementsAre(Pair(0, 0), Pair(1, 1), Pair(2, 2), Pair(3, 0),
                                 Pair(4, 1)));
  EXPECT_EQ(plan.parts[0].resources, Resources("CPU=3"));
}

TEST(PlacementTest, WorkWithoutGpusGoesToNodesWithoutGpusFirst) {
  NodeSnapshot gpu_node = Node(1, "CPU=2,GPU=1");
  Use(gpu_node, 0, 1);

  EXPECT_THAT(Shape(MustPlace({gpu_node, Node(2, "CPU=64")}, Gang(1, "CPU=1"))),
              ElementsAre(Pair(Id(2), 1)));
}

TEST(PlacementTest, TiesGoToTheLowerNodeId) {
  EXPECT_THAT(
      Shape(MustPlace({Node(3, "CPU=2"), Node(1, "CPU=2"), Node(2, "CPU=2")},
                      Gang(2, "CPU=1", PlacementStrategy::kSpread))),
      ElementsAre(Pair(Id(1), 1), Pair(Id(2), 1)));
}

TEST(PlacementTest, WholeGpusAreDevicesNobodyHasAShareOf) {
  NodeSnapshot node = Node(1, "CPU=8,GPU=4");
  Use(node, 1, 0.25);

  const Plan plan = MustPlace({node}, Gang(1, "GPU=3"));

  ASSERT_EQ(plan.parts.size(), 1u);
  EXPECT_THAT(plan.parts[0].devices,
              ElementsAre(Pair("n1-g0", Units(1)), Pair("n1-g2", Units(1)),
                          Pair("n1-g3", Units(1))));
  EXPECT_THAT(MustRefuse({node}, Gang(4, "GPU=1")).reason,
              HasSubstr("room for 3 of 4 workers on 1 node"));
}

TEST(PlacementTest, AFractionTakesTheFullestDeviceThatStillFits) {
  NodeSnapshot node = Node(1, "GPU=3");
  Use(node, 1, 0.75);
  Use(node, 2, 0.5);

  const Plan plan = MustPlace({node}, Gang(3, "GPU=0.25"));

  ASSERT_EQ(plan.parts.size(), 1u);
  EXPECT_THAT(plan.parts[0].devices,
              UnorderedElementsAre(Pair("n1-g1", Units(0.25)),
                                   Pair("n1-g2", Units(0.5))));
  EXPECT_THAT(plan.parts[0].ranks[0].devices,
              ElementsAre(Pair("n1-g1", Units(0.25))));
}

TEST(PlacementTest, AFractionIsNeverOfTwoDevices) {
  NodeSnapshot node = Node(1, "GPU=2");
  Use(node, 0, 0.5);
  Use(node, 1, 0.5);

  const Refusal refusal = MustRefuse({node}, Gang(1, "GPU=0.6"));

  EXPECT_FALSE(refusal.never_fits_known_nodes);
  EXPECT_THAT(refusal.reason,
              HasSubstr("1 short of GPU (most free on a node 1 of 2)"));
}

TEST(PlacementTest, RefusesWhatMakesNoSense) {
  const std::vector<NodeSnapshot> nodes = {Node(1, "CPU=8,GPU=8")};

  EXPECT_THAT(MustRefuse(nodes, Gang(1, "GPU=1.5")).reason,
              HasSubstr("must be a whole number, not 1.5"));
  EXPECT_THAT(MustRefuse(nodes, Gang(0, "CPU=1")).reason,
              HasSubstr("at least one worker"));
}

TEST(PlacementTest, ReasonsCarryNumbers) {
  NodeSnapshot busy = Node(1, "CPU=4,GPU=1");
  Use(busy, 0, 1);
  const std::vector<NodeSnapshot> nodes = {busy, Node(2, "CPU=2"),
                                           Node(3, "CPU=2,GPU=1")};

  const Refusal now = MustRefuse(nodes, Gang(2, "CPU=1,GPU=1"));
  EXPECT_FALSE(now.never_fits_known_nodes);
  EXPECT_EQ(now.reason,
            "needs 2 x {CPU 1, GPU 1} (PACK); room for 1 of 2 workers on 1 "
            "node now; 3 nodes: 2 short of GPU (most free on a node 1 of 1)");

  const Refusal never = MustRefuse(nodes, Gang(1, "GPU=2"));
  EXPECT_TRUE(never.never_fits_known_nodes);
  EXPECT_THAT(never.reason,
              HasSubstr("never fits these nodes: idle they have room for 0 of "
                        "1 workers"));

  const Refusal none = MustRefuse({}, Gang(1, "CPU=1"));
  EXPECT_TRUE(none.never_fits_known_nodes);
  EXPECT_THAT(none.reason, HasSubstr("no node is registered"));
}

TEST(PlacementTest, WorkersThatNeedNothingFitOnAnyNode) {
  EXPECT_THAT(Shape(MustPlace({Node(1, "CPU=1")}, Gang(3, ""))),
              ElementsAre(Pair(Id(1), 3)));
}

// --- against brute force -----------------------------------------------------

struct Case {
  std::vector<NodeSnapshot> nodes;
  GangRequest request;
};

Case RandomCase(Random& random) {
  Case c;
  const int nodes = static_cast<int>(random.Below(5));
  for (int n = 0; n < nodes; ++n) {
    ResourceSet total;
    total.Set(kCpu, Amount::FromUnits(static_cast<int64_t>(random.Below(5))));
    total.Set(kGpu, Amount::FromUnits(static_cast<int64_t>(random.Below(4))));
    total.Set("license",
              Amount::FromUnits(static_cast<int64_t>(random.Below(3))));
    NodeSnapshot node = Node(n + 1, "");
    node.total = node.available = total;
    for (int64_t g = 0; g < total.Get(kGpu).WholeUnits(); ++g) {
      node.devices.push_back(
          {.id = absl::StrCat(node.name, "-g", g), .free = Units(1)});
      if (random.Below(3) == 0) {
        Use(node, node.devices.size() - 1,
            0.25 * static_cast<double>(1 + random.Below(4)));
      }
    }
    c.nodes.push_back(std::move(node));
  }
  std::reverse(c.nodes.begin(), c.nodes.end());
  const double gpus[] = {0, 0.25, 0.3, 0.5, 0.75, 1, 2};
  c.request.num_workers = static_cast<int>(1 + random.Below(5));
  c.request.per_worker.Set(kCpu,
                           Units(0.5 * static_cast<double>(random.Below(4))));
  c.request.per_worker.Set(kGpu, Units(gpus[random.Below(7)]));
  if (random.Below(3) == 0) c.request.per_worker.Set("license", Units(1));
  c.request.strategy = static_cast<PlacementStrategy>(1 + random.Below(4));
  return c;
}

// Workers that fit on a node, by trying: take one after another in every way.
int TryAll(NodeSnapshot node, const ResourceSet& need, int most) {
  if (most == 0 || !node.available.Fits(need)) return 0;
  const Amount gpus = need.Get(kGpu);
  int best = 0;
  const auto with = [&](const std::vector<size_t>& devices, Amount each) {
    NodeSnapshot left = node;
    if (!left.available.Take(need)) return;
    for (const size_t d : devices) left.devices[d].free -= each;
    best = std::max(best, 1 + TryAll(std::move(left), need, most - 1));
  };
  if (gpus.IsZero()) {
    with({}, Amount());
  } else if (gpus < Units(1)) {
    for (size_t d = 0; d < node.devices.size(); ++d) {
      if (node.devices[d].free >= gpus) with({d}, gpus);
    }
  } else {
    std::vector<size_t> whole;
    for (size_t d = 0; d < node.devices.size(); ++d) {
      if (node.devices[d].free == Units(1)) whole.push_back(d);
    }
    if (static_cast<int64_t>(whole.size()) >= gpus.WholeUnits()) {
      whole.resize(static_cast<size_t>(gpus.WholeUnits()));
      with(whole, Units(1));
    }
  }
  return best;
}

// Calls `visit` with every way to deal the workers to the nodes.
void ForEachDeal(const std::vector<int>& capacities, int workers,
                 const std::function<void(const std::vector<int>&)>& visit) {
  std::vector<int> deal(capacities.size(), 0);
  const std::function<void(size_t, int)> go = [&](size_t node, int left) {
    if (node == capacities.size()) {
      if (left == 0) visit(deal);
      return;
    }
    for (int n = 0; n <= std::min(left, capacities[node]); ++n) {
      deal[node] = n;
      go(node + 1, left - n);
    }
    deal[node] = 0;
  };
  go(0, workers);
}

bool Allowed(const std::vector<int>& deal, const GangRequest& request) {
  const int most =
      deal.empty() ? 0 : *std::max_element(deal.begin(), deal.end());
  if (request.strategy == PlacementStrategy::kStrictPack) {
    return most == request.num_workers;
  }
  if (request.strategy == PlacementStrategy::kStrictSpread) return most <= 1;
  return true;
}

size_t NodesUsed(const std::vector<int>& deal) {
  return static_cast<size_t>(
      std::count_if(deal.begin(), deal.end(), [](int n) { return n > 0; }));
}

// Sum of squares: least for the most even deal.
int Unevenness(const std::vector<int>& deal) {
  int sum = 0;
  for (const int n : deal) sum += n * n;
  return sum;
}

std::vector<int> DealOf(const Plan& plan,
                        const std::vector<NodeSnapshot>& nodes) {
  std::vector<int> deal;
  for (const NodeSnapshot& node : nodes) {
    int workers = 0;
    for (const PlannedPart& part : plan.parts) {
      if (part.node == node.id) workers = static_cast<int>(part.ranks.size());
    }
    deal.push_back(workers);
  }
  return deal;
}

// PL-2: takes the plan out of the nodes, which must have it.
void ExpectNothingTakenTwice(const Plan& plan, Case c) {
  std::set<NodeId> seen;
  for (const PlannedPart& part : plan.parts) {
    ASSERT_TRUE(seen.insert(part.node).second) << "a node twice";
    const auto node = std::find_if(
        c.nodes.begin(), c.nodes.end(),
        [&part](const NodeSnapshot& n) { return n.id == part.node; });
    ASSERT_NE(node, c.nodes.end());
    ASSERT_FALSE(part.ranks.empty());
    EXPECT_EQ(part.resources, c.request.per_worker.Times(
                                  static_cast<int64_t>(part.ranks.size())));
    ASSERT_TRUE(node->available.Take(part.resources));
    std::map<std::string, Amount> sum;
    for (const PlannedRank& rank : part.ranks) {
      Amount gpus;
      for (const auto& [id, amount] : rank.devices) {
        sum[id] += amount;
        gpus += amount;
        const auto device = std::find_if(
            node->devices.begin(), node->devices.end(),
            [&id = id](const DeviceShare& d) { return d.id == id; });
        ASSERT_NE(device, node->devices.end());
        device->free -= amount;
        ASSERT_GE(device->free, Amount()) << id;
      }
      const Amount wanted = c.request.per_worker.Get(kGpu);
      ASSERT_EQ(gpus, wanted);
      if (wanted < Units(1)) {
        ASSERT_LE(rank.devices.size(), 1u);
      }
    }
    EXPECT_EQ(sum, part.devices);
  }
}

TEST(PlacementPropertyTest, AgreesWithBruteForce) {
  const uint64_t seed = TestSeed();
  SeededRandom random(seed);
  int placed = 0;
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    const Case c = RandomCase(random);
    SCOPED_TRACE(absl::StrCat("seed ", seed, " round ", round));
    std::vector<int> capacities;
    std::vector<int> idle;
    for (NodeSnapshot node : c.nodes) {
      capacities.push_back(
          TryAll(node, c.request.per_worker, c.request.num_workers));
      node.available = node.total;
      for (DeviceShare& device : node.devices) device.free = Units(1);
      idle.push_back(TryAll(node, c.request.per_worker, c.request.num_workers));
    }
    bool possible = false;
    size_t fewest = c.nodes.size();
    int evenest = 1 << 20;
    ForEachDeal(capacities, c.request.num_workers,
                [&](const std::vector<int>& deal) {
                  if (!Allowed(deal, c.request)) return;
                  possible = true;
                  fewest = std::min(fewest, NodesUsed(deal));
                  evenest = std::min(evenest, Unevenness(deal));
                });
    bool possible_idle = false;
    ForEachDeal(idle, c.request.num_workers, [&](const std::vector<int>& deal) {
      possible_idle = possible_idle || Allowed(deal, c.request);
    });

    const Placement placement = PlaceGang(c.nodes, c.request);
    if (const auto* refusal = std::get_if<Refusal>(&placement)) {
      ++refused;
      ASSERT_FALSE(possible) << refusal->reason;
      ASSERT_EQ(refusal->never_fits_known_nodes, !possible_idle)
          << refusal->reason;
      continue;
    }
    ++placed;
    const Plan& plan = std::get<Plan>(placement);
    ASSERT_TRUE(possible);
    ExpectNothingTakenTwice(plan, c);
    if (testing::Test::HasFatalFailure()) return;
    // PL-1: all of it, ranks numbered through.
    int next_rank = 0;
    for (const PlannedPart& part : plan.parts) {
      int next_local = 0;
      for (const PlannedRank& rank : part.ranks) {
        ASSERT_EQ(rank.rank, next_rank++);
        ASSERT_EQ(rank.local_rank, next_local++);
      }
    }
    ASSERT_EQ(next_rank, c.request.num_workers);
    const std::vector<int> deal = DealOf(plan, c.nodes);
    ASSERT_TRUE(Allowed(deal, c.request));
    if (c.request.strategy == PlacementStrategy::kPack) {
      ASSERT_EQ(NodesUsed(deal), fewest);
    }
    if (c.request.strategy == PlacementStrategy::kSpread) {
      ASSERT_EQ(Unevenness(deal), evenest);
    }
    ASSERT_EQ(PlaceGang(c.nodes, c.request), placement);
  }
  EXPECT_GT(placed, 300);
  EXPECT_GT(refused, 300);
}

TEST(PlacementPropertyTest, TheOrderOfTheNodesDoesNotMatter) {
  SeededRandom random(TestSeed());
  for (int round = 0; round < 500; ++round) {
    Case c = RandomCase(random);
    const Placement forward = PlaceGang(c.nodes, c.request);
    std::reverse(c.nodes.begin(), c.nodes.end());
    const Placement backward = PlaceGang(c.nodes, c.request);
    ASSERT_EQ(forward, backward);
  }
}

TEST(PlacementTest, PlacesAGangOverTenThousandNodes) {
  std::vector<NodeSnapshot> nodes;
  for (int n = 0; n < 10'000; ++n) {
    NodeSnapshot node = Node(0, "CPU=96,GPU=8,memory=1TiB");
    std::string bytes(NodeId::kBytes, '\0');
    bytes[14] = static_cast<char>(n >> 8);
    bytes[15] = static_cast<char>(n & 0xff);
    node.id = *NodeId::FromBytes(bytes);
    nodes.push_back(std::move(node));
  }

  EXPECT_EQ(MustPlace(nodes, Gang(80'000, "CPU=8,GPU=1")).parts.size(),
            10'000u);
  EXPECT_THAT(MustRefuse(nodes, Gang(80'001, "CPU=8,GPU=1")).reason,
              HasSubstr("room for 80000 of 80001 workers"));
}

}  // namespace
}  // namespace cohort::head
