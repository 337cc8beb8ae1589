#include "head/state/node_finder.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/status_util.h"
#include "common/testing/status_matchers.h"

namespace cohort::head {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class NodeFinderTest : public ::testing::Test {
 protected:
  // `hex`, and zeros after it.
  NodeId Add(std::string hex, const std::string& name,
             NodeState state = v1::NODE_STATE_ALIVE) {
    hex.resize(32, '0');
    NodeRecord record;
    record.id = *NodeId::FromHex(hex);
    record.node.set_name(name);
    record.node.set_host("10.0.0.1");
    record.state = state;
    nodes_.Put(record);
    return record.id;
  }

  NodeTable nodes_;
};

TEST_F(NodeFinderTest, TakesAnIdItsBeginningOrAName) {
  const NodeId a = Add("ab12", "one");
  const NodeId b = Add("ab34", "two");
  EXPECT_THAT(FindNode(nodes_, a.ToHex()), IsOkAndHolds(a));
  EXPECT_THAT(FindNode(nodes_, "AB3"), IsOkAndHolds(b));
  EXPECT_THAT(FindNode(nodes_, "one"), IsOkAndHolds(a));
}

TEST_F(NodeFinderTest, PrefersANameToTheBeginningOfAnId) {
  Add("ab12", "one");
  const NodeId b = Add("cd", "ab");
  EXPECT_THAT(FindNode(nodes_, "ab"), IsOkAndHolds(b));
}

TEST_F(NodeFinderTest, NamesTheCandidatesWhenThereAreSeveral) {
  const NodeId a = Add("ab12", "same");
  const NodeId b = Add("cd12", "same");
  const auto found = FindNode(nodes_, "same");
  EXPECT_THAT(found,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(a.ToHex()), HasSubstr(b.ToHex()))));
  EXPECT_EQ(GetReason(found.status()), "ambiguous_node");
  for (int i = 0; i < 20; ++i) Add("ef" + std::to_string(100 + i), "many");
  EXPECT_THAT(FindNode(nodes_, "ef"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("is 20 nodes"), HasSubstr(", ..."))));
}

TEST_F(NodeFinderTest, MeansADeadNodeOnlyWhenNoOtherIsMeant) {
  const NodeId dead = Add("ab12", "n", v1::NODE_STATE_DEAD);
  EXPECT_THAT(FindNode(nodes_, "n"), IsOkAndHolds(dead));
  const NodeId anew = Add("ab34", "n");
  EXPECT_THAT(FindNode(nodes_, "n"), IsOkAndHolds(anew));
  EXPECT_THAT(FindNode(nodes_, "ab"), IsOkAndHolds(anew));
  EXPECT_THAT(FindNode(nodes_, dead.ToHex()), IsOkAndHolds(dead));
}

TEST_F(NodeFinderTest, RefusesWhatMeansNoNode) {
  Add("ab12", "one");
  EXPECT_EQ(GetReason(FindNode(nodes_, "nobody").status()), "unknown_node");
  EXPECT_THAT(FindNode(nodes_, "a\nb"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("a\\nb")));
  EXPECT_THAT(FindNode(nodes_, ""),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(FindNode(nodes_, std::string(300, 'a')),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace cohort::head
