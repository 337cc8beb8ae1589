#include "head/state/node_table.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "head/testing/messages.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Amount Units(int64_t units) { return Amount::FromUnits(units); }

class NodeTableTest : public ::testing::Test {
 protected:
  NodeTableTest() {
    NodeRecord record;
    record.id = node_;
    record.node.set_name("a");
    SetResource(record.node, kCpu, Units(4));
    SetResource(record.node, kGpu, Units(2));
    AddDevice(record.node, {.id = "g0", .kind = "gpu"});
    AddDevice(record.node, {.id = "g1", .kind = "gpu"});
    table_.Put(record);
  }

  // Of one process.
  static NodeTable::Held One(int cpus, const std::string& gpu, int slot = 0) {
    NodeTable::Held held;
    held.each.Set(kCpu, Units(cpus));
    auto& devices = held.processes[{slot, 1}];
    if (!gpu.empty()) {
      held.each.Set(kGpu, Units(1));
      devices[gpu] = Units(1);
    }
    return held;
  }

  const NodeSnapshot& Shown() const { return *table_.index().Find(node_); }

  SeededRandom random_{1};
  const NodeId node_ = NodeId::New(random_);
  const AttemptId attempt_ = AttemptId::New(random_);
  NodeTable table_;
};

// PL-3.
TEST_F(NodeTableTest, ShowsNothingAvailableUntilTheNodeIsOffered) {
  ASSERT_EQ(table_.index().size(), 1u);
  EXPECT_TRUE(Shown().available.empty());
  EXPECT_EQ(Shown().total.Get(kCpu), Units(4));
  EXPECT_EQ(Shown().devices[0].free, Units(0));
  table_.Offer(node_);
  EXPECT_EQ(Shown().available.Get(kCpu), Units(4));
  EXPECT_EQ(Shown().devices[0].free, Units(1));
  EXPECT_EQ(table_.AwaySince(node_), absl::InfinitePast());
  table_.Withdraw(node_, absl::FromUnixSeconds(7));
  EXPECT_EQ(table_.AwaySince(node_), absl::FromUnixSeconds(7));
  EXPECT_TRUE(table_.Available().empty());
  EXPECT_EQ(table_.Total().Get(kCpu), Units(4));
}

// PL-2.
TEST_F(NodeTableTest, HoldsAndReleasesAmountsAndDevices) {
  table_.Offer(node_);
  table_.Hold(attempt_, node_, One(3, "g1"));
  EXPECT_EQ(table_.AvailableOn(node_).Get(kCpu), Units(1));
  EXPECT_EQ(Shown().devices[0].free, Units(1));
  EXPECT_EQ(Shown().devices[1].free, Units(0));
  EXPECT_DEATH(table_.Hold(attempt_, node_, One(1, "")), "");
  table_.Release(attempt_, node_, {0, 1});
  table_.Release(attempt_, node_, {0, 1});
  EXPECT_EQ(table_.AvailableOn(node_).Get(kCpu), Units(4));
}

TEST_F(NodeTableTest, ReleasesOneProcessOfSeveral) {
  table_.Offer(node_);
  table_.Hold(attempt_, node_, One(1, "g0", 0));
  table_.Hold(attempt_, node_, One(1, "g1", 1));
  EXPECT_EQ(table_.HeldOn(node_).at(attempt_).Get(kCpu), Units(2));
  table_.Release(attempt_, node_, {0, 1});
  EXPECT_EQ(Shown().devices[0].free, Units(1));
  EXPECT_EQ(Shown().devices[1].free, Units(0));
  EXPECT_EQ(table_.AvailableOn(node_).Get(kCpu), Units(3));
}

TEST_F(NodeTableTest, KeepsHoldsWhenANodeRegistersAnewAndSmaller) {
  table_.Hold(attempt_, node_, One(3, "g1"));
  NodeRecord smaller = *table_.Find(node_);
  SetResource(smaller.node, kCpu, Units(2));
  table_.Put(smaller);
  table_.Offer(node_);
  EXPECT_EQ(table_.AvailableOn(node_).Get(kCpu), Units(0));
}

TEST_F(NodeTableTest, WithholdsWhatAnOrphanHoldsUntilItIsGone) {
  table_.SetOrphan(node_, attempt_, JobId(), One(3, "g0"));
  table_.Offer(node_);
  EXPECT_EQ(table_.AvailableOn(node_).Get(kCpu), Units(1));
  EXPECT_EQ(Shown().devices[0].free, Units(0));
  EXPECT_THAT(table_.OrphansOn(node_), ElementsAre(attempt_));
  EXPECT_TRUE(table_.RemoveOrphan(node_, attempt_));
  EXPECT_FALSE(table_.RemoveOrphan(node_, attempt_));
  EXPECT_EQ(table_.AvailableOn(node_).Get(kCpu), Units(4));
}

TEST_F(NodeTableTest, WithholdsAllOfANodeWithAnOrphanThatNobodyKnows) {
  table_.Offer(node_);
  table_.SetOrphan(node_, attempt_, JobId(), {.everything = true});
  EXPECT_TRUE(table_.AvailableOn(node_).empty());
}

TEST_F(NodeTableTest, TellsWhichHaveNoRoomBesideAnOrphan) {
  const AttemptId other = AttemptId::New(random_);
  table_.Hold(attempt_, node_, One(1, "g0"));
  table_.Hold(other, node_, One(1, "g1"));
  EXPECT_THAT(table_.WithoutRoom(node_, {attempt_, other}), IsEmpty());
  const AttemptId orphan = AttemptId::New(random_);
  table_.SetOrphan(node_, orphan, JobId(), One(1, "g0"));
  EXPECT_THAT(table_.WithoutRoom(node_, {attempt_, other}),
              ElementsAre(attempt_));
  // Without one of them the other has room.
  table_.SetOrphan(node_, AttemptId::New(random_), JobId(), One(2, ""));
  EXPECT_THAT(table_.WithoutRoom(node_, {other}), ElementsAre(other));
  EXPECT_THAT(table_.WithoutRoom(node_, {attempt_, other}),
              ElementsAre(attempt_));
}

TEST_F(NodeTableTest, ADeadNodeIsNotShown) {
  table_.Offer(node_);
  table_.MarkDead(node_);
  EXPECT_EQ(table_.index().size(), 0u);
  EXPECT_FALSE(table_.IsOffered(node_));
  EXPECT_EQ(table_.CountOf(v1::NODE_STATE_DEAD), 1);
  table_.Remove(node_);
  EXPECT_EQ(table_.Find(node_), nullptr);
}

// A gang gives back rank by rank; the planner sees it once, whole.
TEST_F(NodeTableTest, WhatIsGivenBackBetweenTwoLooksIsOneGain) {
  table_.Offer(node_);
  NodeTable::Held gang = One(1, "g0");
  gang.processes[{1, 1}] = {{"g1", Units(1)}};
  table_.Hold(attempt_, node_, gang);
  EXPECT_EQ(Shown().available.Get(kGpu), Units(0));
  table_.TakeGains();
  table_.Release(attempt_, node_, {0, 1});
  table_.Release(attempt_, node_, {1, 1});
  const Gains gains = table_.TakeGains();
  ASSERT_EQ(gains.gains.size(), 1u);
  EXPECT_EQ(gains.gains[0].node, node_);
  EXPECT_EQ(gains.gains[0].before->available.Get(kGpu), Units(0));
  EXPECT_EQ(gains.gains[0].after->available.Get(kGpu), Units(2));
  EXPECT_EQ(Shown().available.Get(kCpu), Units(4));
  EXPECT_TRUE(table_.TakeGains().gains.empty());
}

// What nobody looked at between is not a gain: nobody was refused for it.
TEST_F(NodeTableTest, WhatIsTakenAndGivenBackBetweenTwoLooksIsNoGain) {
  table_.Offer(node_);
  table_.TakeGains();
  table_.Hold(attempt_, node_, One(4, ""));
  table_.Release(attempt_, node_, {0, 1});
  EXPECT_TRUE(table_.TakeGains().gains.empty());
  EXPECT_EQ(Shown().available.Get(kCpu), Units(4));
}

}  // namespace
}  // namespace cohort::head
