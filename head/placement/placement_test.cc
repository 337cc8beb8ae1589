#include "head/placement/placement.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/gang_limits.h"
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

// They share one arena.
TEST(PlacementTest, ANodeTakesOnlySoManyRanksOfAGang) {
  MustRefuse({Node(1, "CPU=128")}, Gang(kRanksPerNodeMax + 1, "CPU=1"));
  const Plan plan = MustPlace({Node(1, "CPU=128"), Node(2, "CPU=128")},
                              Gang(kRanksPerNodeMax + 1, "CPU=1"));
  ASSERT_EQ(plan.parts.size(), 2u);
  for (const PlannedPart& part : plan.parts) {
    EXPECT_LE(part.ranks.size(), size_t{kRanksPerNodeMax});
  }
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

NodeSnapshot InRack(NodeSnapshot node, const std::string& rack) {
  node.labels["rack"] = rack;
  return node;
}

TEST(PlacementTest, SelectorsChooseByLabelsAndByName) {
  const std::vector<NodeSnapshot> nodes = {InRack(Node(1, "CPU=1"), "r1"),
                                           InRack(Node(2, "CPU=8"), "r2"),
                                           Node(3, "CPU=8")};
  GangRequest request = Gang(1, "CPU=1");
  request.selector = *LabelSelector::Parse("rack=r2");
  EXPECT_THAT(Shape(MustPlace(nodes, request)), ElementsAre(Pair(Id(2), 1)));
  request.selector = *LabelSelector::Parse("host=n3");
  EXPECT_THAT(Shape(MustPlace(nodes, request)), ElementsAre(Pair(Id(3), 1)));
  request.selector = *LabelSelector::Parse("host!=n3,rack!=r1");
  EXPECT_THAT(Shape(MustPlace(nodes, request)), ElementsAre(Pair(Id(2), 1)));

  request.selector = *LabelSelector::Parse("rack=r3");
  const Refusal refusal = MustRefuse(nodes, request);
  EXPECT_TRUE(refusal.never_fits_known_nodes);
  EXPECT_THAT(refusal.reason, HasSubstr("3 nodes: 3 without rack=r3"));
}

TEST(PlacementTest, TaintsKeepOffWhoDoesNotTolerateThem) {
  NodeSnapshot tainted = Node(1, "CPU=1");
  tainted.taints = {{"team", "vision"}};
  GangRequest request = Gang(1, "CPU=1");

  const Refusal refusal = MustRefuse({tainted}, request);
  EXPECT_TRUE(refusal.never_fits_known_nodes);
  EXPECT_THAT(refusal.reason, HasSubstr("1 with taint team=vision"));
  request.tolerations = {*Toleration::Parse("team")};
  EXPECT_THAT(Shape(MustPlace({tainted}, request)),
              ElementsAre(Pair(Id(1), 1)));
}

TEST(PlacementTest, ANodeThatTakesNoNewWorkGetsNoneButStillCounts) {
  NodeSnapshot drained = Node(1, "CPU=1");
  drained.gate = NodeGate::kDrained;

  const Refusal refusal = MustRefuse({drained}, Gang(1, ""));
  EXPECT_FALSE(refusal.never_fits_known_nodes);
  EXPECT_THAT(refusal.reason, HasSubstr("1 node: 1 drained"));
}

TEST(PlacementTest, AnAcceleratorIsNamedBySomeWordsOfItsModel) {
  EXPECT_TRUE(IsAccelerator("NVIDIA H100 80GB HBM3", "H100"));
  EXPECT_TRUE(IsAccelerator("NVIDIA H100 80GB HBM3", "nvidia h100"));
  EXPECT_TRUE(IsAccelerator("NVIDIA A100-SXM4-80GB", "A100"));
  EXPECT_TRUE(IsAccelerator("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"));
  EXPECT_FALSE(IsAccelerator("NVIDIA H100 80GB HBM3", "H10"));
  EXPECT_FALSE(IsAccelerator("NVIDIA H100 80GB HBM3", "100"));
  EXPECT_FALSE(IsAccelerator("", "H100"));
}

TEST(PlacementTest, ARequiredLevelIsTheSmallestDomainThatHoldsTheGang) {
  const std::vector<NodeSnapshot> nodes = {
      InRack(Node(1, "GPU=8"), "big"),   InRack(Node(2, "GPU=8"), "big"),
      InRack(Node(3, "GPU=2"), "fit"),   InRack(Node(4, "GPU=2"), "fit"),
      InRack(Node(5, "GPU=2"), "small"), Node(6, "GPU=8")};
  GangRequest request = Gang(3, "GPU=1");
  request.topology = {.level = "rack", .required = true};
  EXPECT_THAT(Shape(MustPlace(nodes, request)),
              ElementsAre(Pair(Id(3), 2), Pair(Id(4), 1)));

  request.num_workers = 17;
  const Refusal refusal = MustRefuse(nodes, request);
  EXPECT_TRUE(refusal.never_fits_known_nodes);
  EXPECT_THAT(refusal.reason,
              HasSubstr("room for 16 of 17 workers on 2 nodes of rack big"));
  EXPECT_EQ(refusal.missing, 1);

  request.topology.required = false;
  EXPECT_EQ(MustPlace(nodes, request).parts.size(), 3u);
}

// A label may have an empty value, which names a domain as any other does.
TEST(PlacementTest, ADomainMayHaveAnEmptyName) {
  NodeSnapshot unnamed = Node(1, "CPU=4");
  unnamed.labels["rack"] = "";
  unnamed.available = Resources("CPU=3");
  NodeSnapshot named = Node(2, "CPU=1");
  named.labels["rack"] = "z";
  GangRequest request = Gang(4, "CPU=1");
  request.topology = {.level = "rack", .required = true};

  const Refusal refusal = MustRefuse({unnamed, named}, request);
  EXPECT_EQ(refusal.missing, 1);  // of the domain that comes nearest (WL-1)
  EXPECT_FALSE(refusal.never_fits_known_nodes);
  EXPECT_THAT(refusal.reason,
              HasSubstr("room for 3 of 4 workers on 1 node of rack \"\" now"));

  unnamed.available = unnamed.total;
  EXPECT_THAT(Shape(MustPlace({unnamed, named}, request)),
              ElementsAre(Pair(Id(1), 4)));
}

TEST(PlacementTest, TheHostLevelIsOneNode) {
  GangRequest request = Gang(3, "CPU=1", PlacementStrategy::kSpread);
  request.topology = {.level = "host", .required = true};
  EXPECT_THAT(Shape(MustPlace({Node(1, "CPU=2"), Node(2, "CPU=4")}, request)),
              ElementsAre(Pair(Id(2), 3)));
  EXPECT_THAT(MustRefuse({Node(1, "CPU=2"), Node(2, "CPU=2")}, request).reason,
              HasSubstr("room for 2 of 3 workers on one node"));
  request.strategy = PlacementStrategy::kStrictSpread;
  EXPECT_THAT(MustRefuse({Node(1, "CPU=8")}, request).reason,
              HasSubstr("STRICT_SPREAD puts each worker on a node of its own"));
}

TEST(PlacementTest, SaysAllThatKeepsAWorkerOffANode) {
  NodeSnapshot node = Node(1, "CPU=1,GPU=2");
  Use(node, 0, 0.5);
  Use(node, 1, 0.5);
  node.taints = {{"gpu", ""}};
  node.gate = NodeGate::kSuspect;
  GangRequest request = Gang(1, "CPU=3,GPU=0.75");
  request.selector = *LabelSelector::Parse("zone=a");
  request.accelerator_type = "H100";
  request.topology = {.level = "rack", .required = true};

  using By = Misfit::By;
  EXPECT_THAT(WhyNodeCannot(node, request),
              ElementsAre(Misfit{By::kState, "suspect", {}},
                          Misfit{By::kTaint, "gpu", {}},
                          Misfit{By::kAccelerator, "", {}},
                          Misfit{By::kLabel, "zone=a", {}},
                          Misfit{By::kTopology, "rack", {}},
                          Misfit{By::kResource, "CPU", Units(2)},
                          Misfit{By::kResource, "GPU", Units(0.25)}));
}

TEST(PlacementTest, BigNodesStayFreeForBigRequests) {
  // GPUs first, then room, then CPUs, then memory decide what is big.
  const std::vector<NodeSnapshot> nodes = {
      Node(1, "CPU=96,GPU=8,memory=1TiB"), Node(2, "CPU=8,GPU=2,memory=1TiB"),
      Node(3, "CPU=8,GPU=2,memory=64GiB"), Node(4, "CPU=64,memory=1TiB")};
  EXPECT_THAT(Shape(MustPlace(nodes, Gang(1, "CPU=1,GPU=1"))),
              ElementsAre(Pair(Id(3), 1)));
  EXPECT_THAT(Shape(MustPlace(nodes, Gang(2, "CPU=1,GPU=2"))),
              ElementsAre(Pair(Id(1), 2)));
  EXPECT_THAT(Shape(MustPlace(nodes, Gang(1, "CPU=1"))),
              ElementsAre(Pair(Id(4), 1)));
}

// A whole GPU stays whole, also one of a small node.
TEST(PlacementTest, AFractionGoesWhereAGpuIsBrokenAlready) {
  NodeSnapshot big = Node(1, "CPU=96,GPU=8");
  Use(big, 3, 0.5);
  NodeSnapshot fuller = Node(2, "CPU=96,GPU=8");
  Use(fuller, 0, 0.75);
  const std::vector<NodeSnapshot> nodes = {big, fuller, Node(3, "CPU=8,GPU=1")};
  for (const auto strategy :
       {PlacementStrategy::kPack, PlacementStrategy::kSpread,
        PlacementStrategy::kStrictPack, PlacementStrategy::kStrictSpread}) {
    const Plan plan = MustPlace(nodes, Gang(1, "GPU=0.5", strategy));
    EXPECT_THAT(Shape(plan), ElementsAre(Pair(Id(1), 1)));
    EXPECT_THAT(plan.parts[0].devices, ElementsAre(Pair("n1-g3", Units(0.5))));
  }
  // Where none has room the smallest is broken.
  EXPECT_THAT(Shape(MustPlace(nodes, Gang(1, "GPU=0.75"))),
              ElementsAre(Pair(Id(3), 1)));
  // Of those that have, the fuller one.
  EXPECT_THAT(Shape(MustPlace(nodes, Gang(1, "GPU=0.25"))),
              ElementsAre(Pair(Id(2), 1)));
  // A GPU is broken on any node for two: then the smallest.
  EXPECT_THAT(Shape(MustPlace(nodes, Gang(2, "GPU=0.5"))),
              ElementsAre(Pair(Id(3), 2)));
}

TEST(PlacementTest, AFractionGoesToTheDomainWhereAGpuIsBrokenAlready) {
  NodeSnapshot broken = InRack(Node(1, "GPU=8"), "big");
  Use(broken, 0, 0.5);
  const std::vector<NodeSnapshot> nodes = {broken,
                                           InRack(Node(2, "GPU=1"), "small")};
  GangRequest request = Gang(1, "GPU=0.5");
  request.topology = {.level = "rack", .required = true};
  EXPECT_THAT(Shape(MustPlace(nodes, request)), ElementsAre(Pair(Id(1), 1)));
}

// --- against brute force -----------------------------------------------------

struct Case {
  std::vector<NodeSnapshot> nodes;
  GangRequest request;
};

// Labels, taints, a GPU model and a gate, each on some nodes.
void AddFeatures(Random& random, NodeSnapshot& node) {
  const char* const racks[] = {"", "r1", "r2"};
  const std::string rack = racks[random.Below(3)];
  if (!rack.empty()) node.labels["rack"] = rack;
  if (random.Below(2) == 0) node.labels["zone"] = "a";
  if (random.Below(4) == 0) node.taints.push_back({"team", "vision"});
  if (!node.devices.empty() && random.Below(2) == 0) {
    node.accelerator = "NVIDIA H100 80GB";
  }
  if (random.Below(8) == 0) {
    node.gate = static_cast<NodeGate>(1 + random.Below(3));
  }
}

void AddWishes(Random& random, GangRequest& request) {
  const char* const selectors[] = {
      "zone=a",  "zone!=a",         "rack exists",       "rack in (r1,r3)",
      "host=n1", "host!=n2,zone=a", "host in (n1,n2,n9)"};
  if (random.Below(3) == 0) {
    request.selector = *LabelSelector::Parse(selectors[random.Below(7)]);
  }
  if (random.Below(2) == 0) request.tolerations = {*Toleration::Parse("team")};
  if (random.Below(8) == 0) request.accelerator_type = "h100";
  const char* const levels[] = {"host", "rack", "zone", "row"};
  if (random.Below(3) == 0) {
    request.topology = {.level = levels[random.Below(4)],
                        .required = random.Below(2) == 0};
  }
}

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
  for (NodeSnapshot& node : c.nodes) AddFeatures(random, node);
  const double gpus[] = {0, 0.25, 0.3, 0.5, 0.75, 1, 2};
  c.request.num_workers = static_cast<int>(1 + random.Below(5));
  c.request.per_worker.Set(kCpu,
                           Units(0.5 * static_cast<double>(random.Below(4))));
  c.request.per_worker.Set(kGpu, Units(gpus[random.Below(7)]));
  if (random.Below(3) == 0) c.request.per_worker.Set("license", Units(1));
  c.request.strategy = static_cast<PlacementStrategy>(1 + random.Below(4));
  AddWishes(random, c.request);
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

// What the request says of the node, told again in other words.
bool Usable(const NodeSnapshot& node, const GangRequest& request) {
  for (const LabelSelector::Requirement& need :
       request.selector.requirements()) {
    const bool has = need.key == "host" || node.labels.contains(need.key);
    const std::string value = !has                 ? ""
                              : need.key == "host" ? node.name
                                                   : node.labels.at(need.key);
    const bool listed =
        has && std::count(need.values.begin(), need.values.end(), value) > 0;
    const bool holds = need.op == LabelSelector::Operator::kExists ? has
                       : need.op == LabelSelector::Operator::kIn   ? listed
                                                                   : !listed;
    if (!holds) return false;
  }
  return (node.taints.empty() || !request.tolerations.empty()) &&
         (request.accelerator_type.empty() || !node.accelerator.empty());
}

// The best that any way of dealing workers to some nodes reaches.
struct Best {
  bool possible = false;
  size_t fewest = 1000;
  int evenest = 1 << 20;
};

Best TryAllDeals(const std::vector<int>& capacities,
                 const GangRequest& request) {
  Best best;
  ForEachDeal(capacities, request.num_workers,
              [&](const std::vector<int>& deal) {
                if (!Allowed(deal, request)) return;
                best.possible = true;
                best.fewest = std::min(best.fewest, NodesUsed(deal));
                best.evenest = std::min(best.evenest, Unevenness(deal));
              });
  return best;
}

// The domain of each node; empty: in none.
std::vector<std::string> DomainsOf(const Case& c) {
  std::vector<std::string> domains;
  const std::string& level = c.request.topology.level;
  for (const NodeSnapshot& node : c.nodes) {
    const auto label = node.labels.find(level);
    domains.push_back(level == "host"              ? node.name
                      : label == node.labels.end() ? ""
                                                   : label->second);
  }
  return domains;
}

std::vector<int> OnlyIn(const std::string& domain,
                        const std::vector<std::string>& domains,
                        std::vector<int> capacities) {
  for (size_t i = 0; i < domains.size(); ++i) {
    if (domains[i] != domain) capacities[i] = 0;
  }
  return capacities;
}

using Size = std::tuple<int64_t, Amount, int, Amount>;

// Workers with a part of a GPU each that fit beside those who have one.
int TryOnBroken(const Case& c, NodeSnapshot node) {
  node.devices.erase(std::remove_if(node.devices.begin(), node.devices.end(),
                                    [](const DeviceShare& device) {
                                      return device.free == Units(1);
                                    }),
                     node.devices.end());
  return TryAll(std::move(node), c.request.per_worker, c.request.num_workers);
}

// Whole GPUs that the gang would take a part of.
int64_t BrokenBy(const Case& c, int fit_on_broken) {
  const double gpus = c.request.per_worker.Get(kGpu).ToDouble();
  if (gpus == 0 || gpus >= 1) return 0;
  int64_t broken = 0;
  const auto each = static_cast<int>(1 / gpus);
  for (int left = c.request.num_workers - fit_on_broken; left > 0;
       left -= each) {
    ++broken;
  }
  return broken;
}

// What orders nodes and domains, over those that can hold a worker.
Size SizeOf(const Case& c, const std::vector<int>& capacities) {
  Amount gpus;
  int sum = 0;
  int fit_on_broken = 0;
  Amount cpus;
  const bool wants_gpus = !c.request.per_worker.Get(kGpu).IsZero();
  for (size_t i = 0; i < capacities.size(); ++i) {
    if (capacities[i] == 0) continue;
    const NodeSnapshot& node = c.nodes[i];
    gpus += (wants_gpus ? node.available : node.total).Get(kGpu);
    sum += capacities[i];
    cpus += node.available.Get(kCpu);
    fit_on_broken += TryOnBroken(c, node);
  }
  return {BrokenBy(c, fit_on_broken), gpus, sum, cpus};
}

// What the planner must do: refuse, or do as well as the best in one of these
// domains ("": anywhere).
struct Expected {
  std::map<std::string, Best> domains;
  bool possible_idle = false;
};

bool AnyDomainHolds(const Case& c, const std::vector<int>& capacities) {
  const std::vector<std::string> domains = DomainsOf(c);
  return std::any_of(
      domains.begin(), domains.end(), [&](const std::string& domain) {
        return !domain.empty() &&
               TryAllDeals(OnlyIn(domain, domains, capacities), c.request)
                   .possible;
      });
}

Expected Search(const Case& c, const std::vector<int>& capacities,
                const std::vector<int>& idle) {
  Expected expected;
  const TopologyWish& wish = c.request.topology;
  expected.possible_idle = wish.required
                               ? AnyDomainHolds(c, idle)
                               : TryAllDeals(idle, c.request).possible;
  const std::vector<std::string> domains = DomainsOf(c);
  Size smallest;
  for (const std::string& domain :
       std::set<std::string>(domains.begin(), domains.end())) {
    if (domain.empty() || wish.level.empty()) continue;
    const std::vector<int> inside = OnlyIn(domain, domains, capacities);
    const Best best = TryAllDeals(inside, c.request);
    if (!best.possible) continue;
    const Size size = SizeOf(c, inside);
    if (expected.domains.empty() || size < smallest) {
      expected.domains.clear();
      smallest = size;
    }
    if (size == smallest) expected.domains[domain] = best;
  }
  if (!expected.domains.empty() || wish.required) return expected;
  const Best best = TryAllDeals(capacities, c.request);
  if (best.possible) expected.domains[""] = best;
  return expected;
}

std::string DomainOf(const Case& c, const std::vector<int>& deal) {
  std::set<std::string> domains;
  for (size_t i = 0; i < deal.size(); ++i) {
    if (deal[i] > 0) domains.insert(DomainsOf(c)[i]);
  }
  return domains.size() == 1 ? *domains.begin() : "several";
}

// PL-1: all of it, ranks numbered through.
void ExpectWhole(const Plan& plan, int workers) {
  int next_rank = 0;
  for (const PlannedPart& part : plan.parts) {
    int next_local = 0;
    for (const PlannedRank& rank : part.ranks) {
      ASSERT_EQ(rank.rank, next_rank++);
      ASSERT_EQ(rank.local_rank, next_local++);
    }
  }
  ASSERT_EQ(next_rank, workers);
}

// Workers that fit on each node, now or idle.
std::vector<int> TryEachNode(const Case& c, bool make_idle) {
  std::vector<int> capacities;
  for (NodeSnapshot node : c.nodes) {
    if (make_idle) {
      node.available = node.total;
      for (DeviceShare& device : node.devices) device.free = Units(1);
    }
    const bool usable =
        Usable(node, c.request) && (make_idle || node.gate == NodeGate::kOpen);
    capacities.push_back(
        usable ? TryAll(node, c.request.per_worker, c.request.num_workers) : 0);
  }
  return capacities;
}

void ExpectTheBest(const Plan& plan, const Case& c, const Expected& expected) {
  const std::vector<int> deal = DealOf(plan, c.nodes);
  ASSERT_TRUE(Allowed(deal, c.request));
  const std::string domain =
      expected.domains.contains("") ? "" : DomainOf(c, deal);
  ASSERT_TRUE(expected.domains.contains(domain)) << domain;
  const Best& best = expected.domains.at(domain);
  if (c.request.strategy == PlacementStrategy::kPack) {
    ASSERT_EQ(NodesUsed(deal), best.fewest);
  }
  if (c.request.strategy == PlacementStrategy::kSpread) {
    ASSERT_EQ(Unevenness(deal), best.evenest);
  }
}

TEST(PlacementPropertyTest, AgreesWithBruteForce) {
  const uint64_t seed = TestSeed();
  SeededRandom random(seed);
  int placed = 0;
  int refused = 0;
  for (int round = 0; round < 4000; ++round) {
    const Case c = RandomCase(random);
    SCOPED_TRACE(absl::StrCat("seed ", seed, " round ", round, ": ",
                              Describe(c.request)));
    const std::vector<int> capacities = TryEachNode(c, /*make_idle=*/false);
    const Expected expected =
        Search(c, capacities, TryEachNode(c, /*make_idle=*/true));
    for (size_t i = 0; i < c.nodes.size(); ++i) {
      // Those who explain share the planner's truth.
      GangRequest anywhere = c.request;
      anywhere.topology = {};
      ASSERT_EQ(WhyNodeCannot(c.nodes[i], anywhere).empty(), capacities[i] > 0);
    }

    const Placement placement = PlaceGang(c.nodes, c.request);
    if (const auto* refusal = std::get_if<Refusal>(&placement)) {
      ++refused;
      ASSERT_TRUE(expected.domains.empty()) << refusal->reason;
      ASSERT_EQ(refusal->never_fits_known_nodes, !expected.possible_idle)
          << refusal->reason;
      continue;
    }
    ++placed;
    const Plan& plan = std::get<Plan>(placement);
    ExpectNothingTakenTwice(plan, c);
    ExpectWhole(plan, c.request.num_workers);
    ExpectTheBest(plan, c, expected);
    if (testing::Test::HasFatalFailure()) return;
    ASSERT_EQ(PlaceGang(c.nodes, c.request), placement);
  }
  EXPECT_GT(placed, 300);
  EXPECT_GT(refused, 300);
}

// PI-1 to PI-3: what an index went through leaves no trace.
TEST(PlacementPropertyTest, AnIndexThatChangedAnswersAsAFreshOne) {
  const uint64_t seed = TestSeed();
  SeededRandom random(seed);
  for (int round = 0; round < 100; ++round) {
    SCOPED_TRACE(absl::StrCat("seed ", seed, " round ", round));
    PlacementIndex index;
    std::map<NodeId, NodeSnapshot> nodes;
    for (int step = 0; step < 40; ++step) {
      const Case c = RandomCase(random);
      for (const NodeSnapshot& node : c.nodes) {
        if (random.Below(4) == 0) {
          index.Remove(node.id);
          nodes.erase(node.id);
        } else {
          index.Put(node);
          nodes[node.id] = node;
        }
      }
      std::vector<NodeSnapshot> now;
      for (const auto& [id, node] : nodes) now.push_back(node);
      ASSERT_EQ(PlaceGang(index, c.request), PlaceGang(now, c.request));
      ASSERT_EQ(index.size(), now.size());
    }
    for (const auto& [id, node] : nodes) index.Remove(id);
    EXPECT_TRUE(index.all().empty());
    EXPECT_TRUE(index.DomainsOf("rack").empty());
  }
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
