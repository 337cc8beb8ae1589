#include "head/services/node_wire.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/strong_id.h"

namespace cohort::head {
namespace {

using ::testing::SizeIs;

AttemptId IdOf(char c) { return *AttemptId::FromBytes(std::string(16, c)); }

TEST(NodeWireTest, AcknowledgesInMessagesOfABoundedSize) {
  Acknowledged first;
  first.attempt = IdOf('a');
  first.words = {{3, 7}};
  first.paths = {std::string(100, 'x'), std::string(100, 'y')};
  Acknowledged second;
  second.attempt = IdOf('b');
  second.paths = {std::string(100, 'z')};

  const std::vector<v1::Acknowledge> wire = ToWire({first, second}, 240);

  ASSERT_THAT(wire, SizeIs(2));
  ASSERT_THAT(wire[0].words(), SizeIs(1));
  EXPECT_EQ(wire[0].words(0).attempt_id(), std::string(16, 'a'));
  EXPECT_EQ(wire[0].words(0).slot(), 3);
  EXPECT_EQ(wire[0].words(0).incarnation(), 7u);
  ASSERT_THAT(wire[0].checkpoints(), SizeIs(1));
  EXPECT_THAT(wire[0].checkpoints(0).paths(), SizeIs(1));
  ASSERT_THAT(wire[1].checkpoints(), SizeIs(2));
  EXPECT_EQ(wire[1].checkpoints(0).paths(0), std::string(100, 'y'));
  EXPECT_EQ(wire[1].checkpoints(1).attempt_id(), std::string(16, 'b'));
}

TEST(NodeWireTest, AcknowledgesNothingInNoMessage) {
  EXPECT_TRUE(ToWire(std::vector<Acknowledged>(), 240).empty());
}

}  // namespace
}  // namespace cohort::head
