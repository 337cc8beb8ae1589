#include "head/autoscaler/scale_plan.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "head/placement/testing/placement_fixture.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

class ScalePlanTest : public ::testing::Test {
 protected:
  v1::NodeType& AddType(const std::string& name, const std::string& resources,
                        uint32_t max, double cost = 1) {
    v1::NodeType& type = types_[name];
    type.set_name(name);
    *type.mutable_resources() = rpc::ToWire(Resources(resources));
    type.set_max(max);
    type.set_cost(cost);
    return type;
  }
  void Ask(GangRequest request) {
    asks_.push_back(
        {.request = std::make_shared<const GangRequest>(std::move(request))});
  }
  void There(NodeSnapshot node, const std::string& type, bool may_go = false) {
    nodes_.push_back(
        {.node = std::make_shared<const NodeSnapshot>(std::move(node)),
         .type = type,
         .may_go = may_go});
  }
  ScalePlan Make() {
    ScaleInput input{.nodes = nodes_,
                     .asks = asks_,
                     .wanted = wanted_,
                     .max_nodes = max_nodes_,
                     .launching_max = launching_max_,
                     .launch_time = launch_time_};
    for (const auto& [name, type] : types_) {
      input.types.push_back(
          {.type = &type, .backs_off = back_off_.contains(name)});
    }
    return PlanScale(input);
  }
  static std::map<std::string, int> Counts(const ScalePlan& plan) {
    std::map<std::string, int> counts;
    for (const auto& launch : plan.launches) ++counts[launch.type];
    return counts;
  }

  std::map<std::string, v1::NodeType> types_;
  std::set<std::string> back_off_;
  std::vector<ScaleNode> nodes_;
  std::vector<ScaleAsk> asks_;
  std::vector<WantedRoom> wanted_;
  size_t max_nodes_ = 100;
  size_t launching_max_ = 100;
  absl::Duration launch_time_;
};

TEST_F(ScalePlanTest, LaunchesTheFewestNodesForAGang) {
  AddType("cpu", "CPU=4", 10);
  Ask(Gang(6, "CPU=2"));
  EXPECT_THAT(Counts(Make()), ElementsAre(Pair("cpu", 3)));
}

TEST_F(ScalePlanTest, CountsWhatIsFreeAndWhatIsOnItsWay) {
  const v1::NodeType type = AddType("cpu", "CPU=4", 10);
  There(Node(1, "CPU=4"), "");
  There(NodeOfType(type, Id(2)), "cpu");
  nodes_.back().is_launching = true;
  Ask(Gang(6, "CPU=2"));
  const ScalePlan plan = Make();
  EXPECT_THAT(Counts(plan), ElementsAre(Pair("cpu", 1)));
  EXPECT_THAT(plan.served.at(JobId()), ElementsAre(Pair("cpu", 2)));
}

TEST_F(ScalePlanTest, TakesTheCheapestType) {
  AddType("large", "CPU=16", 10, 3.5);
  AddType("small", "CPU=4", 10, 1);
  Ask(Gang(4, "CPU=4"));
  EXPECT_THAT(Counts(Make()), ElementsAre(Pair("large", 1)));
  asks_.clear();
  Ask(Gang(2, "CPU=4"));
  EXPECT_THAT(Counts(Make()), ElementsAre(Pair("small", 2)));
}

TEST_F(ScalePlanTest, WorkWithoutGpusKeepsOffNodesWithThem) {
  AddType("gpu", "CPU=8,GPU=4", 10, 0.5);
  AddType("cpu", "CPU=8", 1, 2);
  Ask(Gang(1, "CPU=8"));
  EXPECT_THAT(Counts(Make()), ElementsAre(Pair("cpu", 1)));
  // Unless nothing else is to be had.
  Ask(Gang(1, "CPU=8"));
  EXPECT_THAT(Counts(Make()),
              UnorderedElementsAre(Pair("cpu", 1), Pair("gpu", 1)));
}

TEST_F(ScalePlanTest, MixesTypesWhenNoneHoldsAGangAlone) {
  AddType("a", "CPU=4", 2, 1);
  AddType("b", "CPU=2", 10, 1);
  Ask(Gang(5, "CPU=2"));
  EXPECT_THAT(Counts(Make()), ElementsAre(Pair("b", 5)));
  types_["b"].set_max(3);
  EXPECT_THAT(Counts(Make()), UnorderedElementsAre(Pair("a", 2), Pair("b", 1)));
}

TEST_F(ScalePlanTest, LaunchesNothingForAGangThatIsNeverWhole) {
  AddType("cpu", "CPU=4", 2);
  Ask(Gang(3, "CPU=4"));
  const ScalePlan plan = Make();
  EXPECT_THAT(plan.launches, IsEmpty());
  ASSERT_THAT(plan.unserved, SizeIs(1));
  EXPECT_THAT(plan.unserved[0].why, HasSubstr("raise max"));
  asks_.clear();
  Ask(Gang(1, "CPU=8"));
  EXPECT_THAT(Make().unserved[0].why, HasSubstr("no node type"));
}

TEST_F(ScalePlanTest, HeedsLabelsTaintsStrategyAndTheLimitOfAll) {
  (*AddType("a", "CPU=4", 10).mutable_labels())["zone"] = "a";
  v1::NodeType& tainted = AddType("b", "CPU=4", 10);
  (*tainted.mutable_labels())["zone"] = "b";
  tainted.add_taints()->set_key("reserved");
  GangRequest in_b = Gang(1, "CPU=1");
  in_b.selector = *LabelSelector::Parse("zone=b");
  Ask(in_b);
  EXPECT_THAT(Make().launches, IsEmpty());
  in_b.tolerations = {*Toleration::Parse("reserved")};
  asks_.clear();
  Ask(in_b);
  EXPECT_THAT(Counts(Make()), ElementsAre(Pair("b", 1)));
  asks_.clear();
  Ask(Gang(3, "CPU=1", v1::PLACEMENT_STRATEGY_STRICT_SPREAD));
  EXPECT_THAT(Counts(Make()), ElementsAre(Pair("a", 3)));
  max_nodes_ = 2;
  EXPECT_THAT(Make().launches, IsEmpty());
}

TEST_F(ScalePlanTest, TriesTheNextBestTypeWhileOneFails) {
  AddType("cheap", "CPU=4", 10, 1);
  AddType("dear", "CPU=4", 10, 5);
  Ask(Gang(1, "CPU=4"));
  back_off_ = {"cheap"};
  EXPECT_THAT(Counts(Make()), ElementsAre(Pair("dear", 1)));
  back_off_ = {"cheap", "dear"};
  EXPECT_THAT(Make().unserved[0].why, HasSubstr("fail"));
}

TEST_F(ScalePlanTest, FillsUpToMinAndEndsIdleNodesAboveIt) {
  AddType("cpu", "CPU=4", 10).set_min(2);
  EXPECT_THAT(Counts(Make()), ElementsAre(Pair("cpu", 2)));
  for (int i = 1; i <= 3; ++i) There(Node(i, "CPU=4"), "cpu", true);
  const ScalePlan plan = Make();
  EXPECT_THAT(plan.launches, IsEmpty());
  EXPECT_THAT(plan.ending, SizeIs(1));
}

TEST_F(ScalePlanTest, KeepsIdleNodesThatAWaitingGangNeeds) {
  AddType("cpu", "CPU=4", 10);
  There(Node(1, "CPU=4"), "cpu", true);
  There(Node(2, "CPU=4"), "cpu", true);
  Ask(Gang(3, "CPU=4"));
  const ScalePlan plan = Make();
  EXPECT_THAT(Counts(plan), ElementsAre(Pair("cpu", 1)));
  EXPECT_THAT(plan.ending, IsEmpty());
}

TEST_F(ScalePlanTest, RequestedRoomIsThereWhoeverUsesIt) {
  AddType("cpu", "CPU=4", 10);
  NodeSnapshot busy = Node(1, "CPU=4");
  busy.available = ResourceSet();
  There(busy, "cpu", false);
  There(Node(2, "CPU=4"), "cpu", true);
  wanted_ = {{"mine", Resources("CPU=2"), 4}};
  ScalePlan plan = Make();
  EXPECT_THAT(plan.launches, IsEmpty());
  EXPECT_THAT(plan.ending, IsEmpty());
  // Another's is beside it.
  wanted_.push_back({"theirs", Resources("CPU=4"), 1});
  EXPECT_THAT(Counts(Make()), ElementsAre(Pair("cpu", 1)));
}

TEST_F(ScalePlanTest, EndsNothingThatItHadNoTimeToLookFor) {
  AddType("cpu", "CPU=1", 10);
  There(Node(1, "CPU=1"), "cpu", true);
  EXPECT_THAT(Make().ending, SizeIs(1));
  for (int i = 0; i < 20'000; ++i) {
    wanted_.push_back({"w", Resources("CPU=64"), 1});
  }
  EXPECT_THAT(Make().ending, IsEmpty());
}

TEST_F(ScalePlanTest, NotTooManyAreOnTheirWayAtOnce) {
  AddType("cpu", "CPU=1", 100);
  launching_max_ = 5;
  for (int i = 0; i < 20; ++i) Ask(Gang(1, "CPU=1"));
  EXPECT_THAT(Make().launches, SizeIs(5));
  // But a gang comes whole.
  asks_.clear();
  Ask(Gang(8, "CPU=1"));
  EXPECT_THAT(Make().launches, SizeIs(8));
}

// A node that is busy for ray#50783: room that is requested and used at the
// same time is counted once, so the plan does not go on for ever.
TEST_F(ScalePlanTest, StandsStillOnceItIsCarriedOut) {
  const v1::NodeType type = AddType("gpu", "CPU=8,GPU=2", 10);
  wanted_ = {{"mine", Resources("GPU=1"), 3}};
  Ask(Gang(4, "GPU=1"));
  const ScalePlan plan = Make();
  EXPECT_THAT(plan.launches, SizeIs(2));
  for (int i = 0; i < 2; ++i) {
    There(NodeOfType(type, Id(10 + i)), "gpu");
    nodes_.back().is_launching = true;
  }
  EXPECT_THAT(Make().launches, IsEmpty());
}

// SC-10.
TEST_F(ScalePlanTest, LaunchesNothingForWhatTimeLimitsFreeSooner) {
  AddType("gpu", "CPU=4,GPU=1", 10);
  NodeSnapshot busy = Node(1, "CPU=4,GPU=1");
  Use(busy, 0, 1);
  There(busy, "gpu");
  NodeSnapshot idle = Node(2, "CPU=4,GPU=1");
  Use(idle, 0, 1);  // by somebody else
  There(idle, "gpu", /*may_go=*/true);
  nodes_[0].releases = {{.in = absl::Seconds(40),
                         .job = "train",
                         .resources = Resources("GPU=1"),
                         .devices = {{"n1-g0", Units(1)}}}};
  Ask(Gang(1, "GPU=1"));
  // How long a launch takes is not known.
  EXPECT_THAT(Make().launches, SizeIs(1));
  launch_time_ = absl::Seconds(39);
  EXPECT_THAT(Make().launches, SizeIs(1));
  launch_time_ = absl::Seconds(40);
  const ScalePlan plan = Make();
  EXPECT_THAT(plan.launches, IsEmpty());
  EXPECT_EQ(plan.awaited.at(JobId()).job, "train");
  EXPECT_EQ(plan.awaited.at(JobId()).node, "n1");
  EXPECT_EQ(plan.awaited.at(JobId()).in, absl::Seconds(40));
  // What it needs soon may be there.
  EXPECT_THAT(plan.ending, IsEmpty());
  // It makes room for one of them only, and not once it is overdue.
  Ask(Gang(1, "GPU=1"));
  EXPECT_THAT(Make().launches, SizeIs(1));
  nodes_[0].releases[0].in = absl::ZeroDuration();
  EXPECT_THAT(Make().launches, SizeIs(2));
}

TEST_F(ScalePlanTest, TakesBackWhatNobodyWasAskedForYet) {
  const v1::NodeType type = AddType("cpu", "CPU=4", 10);
  There(Node(1, "CPU=4"), "cpu", /*may_go=*/true);
  for (const int node : {2, 3}) {
    There(NodeOfType(type, Id(node)), "cpu", /*may_go=*/node == 2);
    nodes_.back().is_launching = true;
  }
  types_["cpu"].set_min(3);
  EXPECT_THAT(Make().ending, IsEmpty());
  // Rather than what is there already.
  types_["cpu"].set_min(2);
  EXPECT_THAT(Make().ending, ElementsAre(Id(2)));
  types_["cpu"].set_min(0);
  Ask(Gang(3, "CPU=4"));
  EXPECT_THAT(Make().ending, IsEmpty());
}

}  // namespace
}  // namespace cohort::head
