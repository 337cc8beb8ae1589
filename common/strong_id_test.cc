#include "common/strong_id.h"

#include "absl/container/flat_hash_set.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"

namespace cohort {
namespace {

using ::testing::HasSubstr;

TEST(StrongIdTest, GoesThroughHexAndBytes) {
  SeededRandom random(1);
  const NodeId id = NodeId::New(random);
  EXPECT_FALSE(id.IsNil());
  EXPECT_EQ(id.ToHex().size(), 32u);
  EXPECT_THAT(NodeId::FromHex(id.ToHex()), IsOkAndHolds(id));
  EXPECT_THAT(NodeId::FromBytes(id.bytes()), IsOkAndHolds(id));
}

TEST(StrongIdTest, ReadsBothCases) {
  EXPECT_EQ(*NodeId::FromHex("AABBCCDDEEFF00112233445566778899"),
            *NodeId::FromHex("aabbccddeeff00112233445566778899"));
}

TEST(StrongIdTest, RefusesWhatIsNoIdAndSaysWhatOneIs) {
  EXPECT_THAT(NodeId::FromHex("xyz"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("a node id is 32 hex digits, not \"xyz\"")));
  EXPECT_THAT(NodeId::FromHex(std::string(32, 'g')),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(NodeId::FromBytes("short"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("a node id has 16 bytes")));
}

TEST(StrongIdTest, StartsNil) {
  EXPECT_TRUE(NodeId().IsNil());
  EXPECT_THAT(NodeId::FromBytes(std::string(16, '\0')), IsOkAndHolds(NodeId()));
}

TEST(StrongIdTest, HashesAndCompares) {
  SystemRandom random;
  absl::flat_hash_set<NodeId> ids;
  for (int i = 0; i < 100; ++i) ids.insert(NodeId::New(random));
  EXPECT_EQ(ids.size(), 100u);
  EXPECT_LT(NodeId(), *ids.begin());
}

}  // namespace
}  // namespace cohort
