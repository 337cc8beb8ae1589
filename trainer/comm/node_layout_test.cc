#include "trainer/comm/node_layout.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"

namespace cohort::trainer {
namespace {

using ::testing::HasSubstr;

TEST(NodeLayoutTest, CountsNodesByTheirFirstRank) {
  const Seat seats[] = {{7, 0}, {7, 1}, {7, 2}, {3, 0}, {5, 0}, {5, 1}};
  const auto layout = NodeLayout::Of(seats);
  ASSERT_THAT(layout, IsOk());
  EXPECT_EQ(layout->world(), 6);
  EXPECT_EQ(layout->nodes(), 3);
  EXPECT_EQ(layout->FirstOf(1), 3);
  EXPECT_EQ(layout->SizeOf(2), 2);
  EXPECT_EQ(layout->NodeOf(2), 0);
  EXPECT_EQ(layout->NodeOf(3), 1);
  EXPECT_EQ(layout->NodeOf(5), 2);
  EXPECT_EQ(layout->smallest(), 1);
  EXPECT_EQ(layout->largest(), 3);
}

TEST(NodeLayoutTest, NamesTheRankThatIsOutOfOrder) {
  const Seat apart[] = {{0, 0}, {1, 0}, {0, 1}};
  EXPECT_THAT(
      NodeLayout::Of(apart),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("rank 2")));
  const Seat alone_again[] = {{0, 0}, {1, 0}, {0, 0}};
  EXPECT_THAT(
      NodeLayout::Of(alone_again),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("rank 2")));
  const Seat swapped[] = {{0, 1}, {0, 0}};
  EXPECT_THAT(
      NodeLayout::Of(swapped),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("rank 0")));
}

}  // namespace
}  // namespace cohort::trainer
