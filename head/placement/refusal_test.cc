#include "head/placement/refusal.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/gang_limits.h"
#include "head/placement/testing/placement_fixture.h"

namespace cohort::head {
namespace {

using ::testing::HasSubstr;

// What is free of one node and the size of another would be no node at all.
TEST(RefusalTest, TellsOfOneNodeWhatIsFreeAndHowMuchItHas) {
  NodeSnapshot small = Node(1, "CPU=4");
  small.available.Set(kCpu, Units(3));
  NodeSnapshot big = Node(2, "CPU=64");
  big.available.Set(kCpu, Units(1));
  EXPECT_THAT(MustRefuse({small, big}, Gang(1, "CPU=8")).reason,
              HasSubstr("(most free on a node 3 of 4)"));
  big.available.Set(kCpu, Units(3));
  EXPECT_THAT(MustRefuse({small, big}, Gang(1, "CPU=8")).reason,
              HasSubstr("(most free on a node 3 of 64)"));
}

TEST(RefusalTest, OfPartsOfGpusItTellsWhatAWorkerCanUse) {
  NodeSnapshot node = Node(1, "CPU=4,GPU=2");
  for (DeviceShare& device : node.devices) {
    device.free = Amount::FromTenThousandths(4'000);
  }
  node.available.Set(kGpu, Amount::FromTenThousandths(8'000));
  EXPECT_THAT(MustRefuse({node}, Gang(1, "GPU=0.5")).reason,
              HasSubstr("short of GPU (most free on one GPU 0.4 of 1)"));
  EXPECT_THAT(MustRefuse({node}, Gang(1, "GPU=1")).reason,
              HasSubstr("short of GPU (most free on a node 0 of 2)"));
}

TEST(RefusalTest, WhatNoNodeEverHoldsIsNotTheWantOfOthers) {
  const std::vector<NodeSnapshot> nodes = {Node(1, "CPU=128")};
  GangRequest request = Gang(kRanksPerNodeMax + 1, "CPU=1");
  request.topology = {.level = std::string(kHostLevel), .required = true};
  EXPECT_EQ(MustRefuse(nodes, request).reason,
            "all 65 workers are to be on one node, and at most 64 of a job "
            "ever are");
  request.num_workers = kRanksPerNodeMax;
  MustPlace(nodes, request);
  // Without an arena it is the keeper that says how many.
  request.ranks_per_node_max = kProcessesPerNodeMax;
  request.num_workers = kProcessesPerNodeMax + 1;
  EXPECT_EQ(MustRefuse(nodes, request).reason,
            "all 1025 workers are to be on one node, and at most 1024 of a job "
            "ever are");
  request.num_workers = kRanksPerNodeMax + 1;
  MustPlace(nodes, request);
}

}  // namespace
}  // namespace cohort::head
