#include "head/placement/placement.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/gang_limits.h"
#include "head/placement/testing/placement_fixture.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

// That its ranks get together.
std::map<std::string, Amount> DevicesOf(const PlannedPart& part) {
  std::map<std::string, Amount> devices;
  for (const PlannedRank& rank : part.ranks) {
    for (const auto& [id, amount] : rank.devices) devices[id] += amount;
  }
  return devices;
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

// Others share none, and have as many as their keeper runs.
TEST(PlacementTest, WhereThereIsNoArenaANodeTakesAsManyAsItsKeeperRuns) {
  GangRequest request = Gang(kRanksPerNodeMax + 1, "CPU=0.1");
  request.ranks_per_node_max = kProcessesPerNodeMax;
  EXPECT_THAT(Shape(MustPlace({Node(1, "CPU=128")}, request)),
              ElementsAre(Pair(Id(1), kRanksPerNodeMax + 1)));
  request.num_workers = kProcessesPerNodeMax + 1;
  EXPECT_THAT(MustRefuse({Node(1, "CPU=128")}, request).reason,
              HasSubstr("room for 1024 of 1025 workers on 1 node"));
  EXPECT_EQ(
      MustPlace({Node(1, "CPU=128"), Node(2, "CPU=128")}, request).parts.size(),
      2u);
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
                Gang(6, "CPU=1", v1::PLACEMENT_STRATEGY_SPREAD));

  EXPECT_THAT(Shape(plan),
              ElementsAre(Pair(Id(1), 3), Pair(Id(3), 2), Pair(Id(2), 1)));
}

TEST(PlacementTest, StrictPackIsOneNodeOrNone) {
  const auto request = Gang(3, "CPU=1", v1::PLACEMENT_STRATEGY_STRICT_PACK);

  EXPECT_THAT(Shape(MustPlace({Node(1, "CPU=2"), Node(2, "CPU=3")}, request)),
              ElementsAre(Pair(Id(2), 3)));
  EXPECT_THAT(MustRefuse({Node(1, "CPU=2"), Node(2, "CPU=2")}, request).reason,
              HasSubstr("room for 2 of 3 workers on one node"));
}

TEST(PlacementTest, StrictSpreadIsANodeEachOrNone) {
  const auto request = Gang(2, "CPU=1", v1::PLACEMENT_STRATEGY_STRICT_SPREAD);

  EXPECT_THAT(
      Shape(MustPlace({Node(1, "CPU=8"), Node(2, "CPU=2"), Node(3, "CPU=1")},
                      request)),
      ElementsAre(Pair(Id(2), 1), Pair(Id(3), 1)));
  EXPECT_THAT(MustRefuse({Node(1, "CPU=8")}, request).reason,
              HasSubstr("room on 1 of the 2 different nodes"));
}

TEST(PlacementTest, SoManyOnEachNode) {
  const std::vector<NodeSnapshot> nodes = {Node(1, "CPU=8"), Node(2, "CPU=3"),
                                           Node(3, "CPU=5"), Node(4, "CPU=4")};
  GangRequest request = Gang(8, "CPU=1");
  request.workers_per_node = 4;
  for (const PlacementStrategy strategy :
       {v1::PLACEMENT_STRATEGY_PACK, v1::PLACEMENT_STRATEGY_SPREAD}) {
    request.strategy = strategy;
    EXPECT_THAT(Shape(MustPlace(nodes, request)),
                UnorderedElementsAre(Pair(Id(3), 4), Pair(Id(4), 4)));
  }
  request.num_workers = 12;
  EXPECT_EQ(MustPlace(nodes, request).parts.size(), 3u);
  request.num_workers = 16;
  const Refusal refusal = MustRefuse(nodes, request);
  EXPECT_THAT(refusal.reason,
              HasSubstr("needs 16 x {CPU 1} (SPREAD), 4 on each node; room for "
                        "12 of 16 workers on 3 nodes now; 4 nodes: 1 short of "
                        "CPU"));
  EXPECT_EQ(refusal.missing, 4);
  const std::vector<Misfit> misfits = WhyNodeCannot(nodes[1], request);
  ASSERT_EQ(misfits.size(), 1u);
  EXPECT_EQ(misfits[0].short_by, Units(1));
}

TEST(PlacementTest, SoManyOnEachNodeOfOneDomain) {
  std::vector<NodeSnapshot> nodes;
  for (int i = 1; i <= 4; ++i) {
    nodes.push_back(Node(i, "CPU=2"));
    nodes.back().labels["rack"] = i % 2 == 0 ? "even" : "odd";
  }
  nodes[0].available = nodes[0].total = ResourceSet();  // of the odd rack
  GangRequest request = Gang(4, "CPU=1");
  request.workers_per_node = 2;
  request.topology = {.level = "rack", .required = true};
  EXPECT_THAT(Shape(MustPlace(nodes, request)),
              ElementsAre(Pair(Id(2), 2), Pair(Id(4), 2)));
}

TEST(PlacementTest, SoManyOnEachNodeThatCannotBe) {
  const std::vector<NodeSnapshot> nodes = {Node(1, "CPU=200")};
  const auto refuse = [&nodes](int workers, int each,
                               PlacementStrategy strategy) {
    GangRequest request = Gang(workers, "CPU=1", strategy);
    request.workers_per_node = each;
    const Refusal refusal = MustRefuse(nodes, request);
    EXPECT_TRUE(refusal.never_fits_known_nodes);
    return refusal.reason;
  };
  EXPECT_THAT(refuse(5, 2, v1::PLACEMENT_STRATEGY_PACK),
              HasSubstr("give a multiple of 2"));
  EXPECT_THAT(refuse(5, -1, v1::PLACEMENT_STRATEGY_PACK), HasSubstr("-1"));
  EXPECT_THAT(refuse(130, 65, v1::PLACEMENT_STRATEGY_PACK),
              HasSubstr("at most 64"));
  EXPECT_THAT(refuse(4, 2, v1::PLACEMENT_STRATEGY_STRICT_PACK),
              HasSubstr("on one node"));
  EXPECT_THAT(refuse(4, 2, v1::PLACEMENT_STRATEGY_STRICT_SPREAD),
              HasSubstr("a node of its own"));
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
                      Gang(2, "CPU=1", v1::PLACEMENT_STRATEGY_SPREAD))),
      ElementsAre(Pair(Id(1), 1), Pair(Id(2), 1)));
}

TEST(PlacementTest, WholeGpusAreDevicesNobodyHasAShareOf) {
  NodeSnapshot node = Node(1, "CPU=8,GPU=4");
  Use(node, 1, 0.25);

  const Plan plan = MustPlace({node}, Gang(1, "GPU=3"));

  ASSERT_EQ(plan.parts.size(), 1u);
  EXPECT_THAT(DevicesOf(plan.parts[0]),
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
  EXPECT_THAT(DevicesOf(plan.parts[0]),
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
              HasSubstr("1 short of GPU (most free on one GPU 0.5 of 1)"));
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
  EXPECT_THAT(
      never.reason,
      HasSubstr("never fits these nodes: when idle they have room for 0 of "
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
  GangRequest request = Gang(3, "CPU=1", v1::PLACEMENT_STRATEGY_SPREAD);
  request.topology = {.level = "host", .required = true};
  EXPECT_THAT(Shape(MustPlace({Node(1, "CPU=2"), Node(2, "CPU=4")}, request)),
              ElementsAre(Pair(Id(2), 3)));
  EXPECT_THAT(MustRefuse({Node(1, "CPU=2"), Node(2, "CPU=2")}, request).reason,
              HasSubstr("room for 2 of 3 workers on one node"));
  request.strategy = v1::PLACEMENT_STRATEGY_STRICT_SPREAD;
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

// DV-5
TEST(PlacementTest, FencedGpusAreTheReasonWhereTheyWouldDo) {
  NodeSnapshot node = Node(1, "CPU=4,GPU=2");
  for (DeviceShare& device : node.devices)
    std::swap(device.free, device.fenced);
  node.available.Set(kGpu, Amount());
  using By = Misfit::By;
  EXPECT_THAT(WhyNodeCannot(node, Gang(1, "CPU=1,GPU=1")),
              ElementsAre(Misfit{By::kDevice, "fenced", {}}));
  EXPECT_THAT(WhyNodeCannot(node, Gang(1, "CPU=8,GPU=0.5")),
              ElementsAre(Misfit{By::kDevice, "fenced", {}},
                          Misfit{By::kResource, "CPU", Units(4)}));
  EXPECT_THAT(WhyNodeCannot(node, Gang(1, "GPU=3")),
              ElementsAre(Misfit{By::kResource, "GPU", Units(3)}));
  EXPECT_THAT(Shape(MustPlace({node}, Gang(4, "CPU=1"))),
              ElementsAre(Pair(Id(1), 4)));
  const Refusal refusal = MustRefuse({node}, Gang(1, "GPU=2"));
  EXPECT_THAT(refusal.reason, HasSubstr("1 with fenced GPUs"));
  EXPECT_FALSE(refusal.never_fits_known_nodes);
  std::swap(node.devices[1].free, node.devices[1].fenced);
  node.available.Set(kGpu, Units(1));
  EXPECT_THAT(DevicesOf(MustPlace({node}, Gang(1, "GPU=1")).parts[0]),
              ElementsAre(Pair("n1-g1", Units(1))));
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
       {v1::PLACEMENT_STRATEGY_PACK, v1::PLACEMENT_STRATEGY_SPREAD,
        v1::PLACEMENT_STRATEGY_STRICT_PACK,
        v1::PLACEMENT_STRATEGY_STRICT_SPREAD}) {
    const Plan plan = MustPlace(nodes, Gang(1, "GPU=0.5", strategy));
    EXPECT_THAT(Shape(plan), ElementsAre(Pair(Id(1), 1)));
    EXPECT_THAT(DevicesOf(plan.parts[0]),
                ElementsAre(Pair("n1-g3", Units(0.5))));
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
