#include "actor/grid.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"

namespace cohort::actor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class GridTest : public ::testing::Test {
 protected:
  const Grid grid_ = *Grid::Make({{"hosts", 2}, {"gpus", 4}});
};

TEST_F(GridTest, NumbersPlacesWithTheLastDimensionFastest) {
  EXPECT_EQ(grid_.size(), 8);
  EXPECT_THAT(grid_.Ranks(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(grid_.Coordinate(5, "hosts"), IsOkAndHolds(1));
  EXPECT_THAT(grid_.Coordinate(5, "gpus"), IsOkAndHolds(1));
}

TEST_F(GridTest, SlicesInSlices) {
  const Grid host = *grid_.Slice("hosts", 1, 2);
  EXPECT_THAT(host.Ranks(), ElementsAre(4, 5, 6, 7));
  const Grid middle = *host.Slice("gpus", 1, 3);
  EXPECT_THAT(middle.Ranks(), ElementsAre(5, 6));
  // Counted in the slice.
  EXPECT_THAT(middle.Slice("gpus", 1, 2)->Ranks(), ElementsAre(6));
  EXPECT_EQ(middle.size(), 8) << "the grid stays what it is";
}

TEST_F(GridTest, SaysWhichSlicesThereAre) {
  EXPECT_THAT(grid_.Slice("racks", 0, 1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("there are: hosts, gpus")));
  EXPECT_THAT(grid_.Slice("gpus", 2, 5),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("goes from 0 to 3")));
  EXPECT_FALSE(grid_.Slice("gpus", 2, 2).ok());
  EXPECT_FALSE(grid_.Slice("gpus", -1, 2).ok());
}

TEST_F(GridTest, NeighboursAreRings) {
  EXPECT_THAT(grid_.Neighbour(3, "gpus", 1), IsOkAndHolds(0));
  EXPECT_THAT(grid_.Neighbour(4, "gpus", -1), IsOkAndHolds(7));
  EXPECT_THAT(grid_.Neighbour(1, "hosts", 1), IsOkAndHolds(5));
  EXPECT_THAT(grid_.Neighbour(1, "hosts", -5), IsOkAndHolds(5));
  EXPECT_FALSE(grid_.Neighbour(1, "racks", 1).ok());
}

TEST(GridOfTest, OnePlaceWithoutDimensions) {
  EXPECT_EQ(Grid().size(), 1);
  EXPECT_THAT(Grid().Ranks(), ElementsAre(0));
}

TEST(GridOfTest, RefusesWhatCannotBe) {
  EXPECT_FALSE(Grid::Make({}).ok());
  EXPECT_FALSE(Grid::Make({{"", 1}}).ok());
  EXPECT_FALSE(Grid::Make({{"a=b", 1}}).ok());
  EXPECT_FALSE(Grid::Make({{"a", 1}, {"a", 1}}).ok());
  EXPECT_FALSE(Grid::Make({{"a", 0}}).ok());
  EXPECT_FALSE(Grid::Make({{"a", 2'000'000'000}, {"b", 2'000'000'000}}).ok());
  EXPECT_TRUE(Grid::Make({{"a", 100}, {"b", 100}}).ok());
}

}  // namespace
}  // namespace cohort::actor
