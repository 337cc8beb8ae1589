#include "trainer/preflight/tournament.h"

#include <set>
#include <utility>

#include "gtest/gtest.h"

namespace cohort::trainer {
namespace {

TEST(TournamentTest, EveryoneMeetsEveryoneOnce) {
  for (int world = 1; world <= 33; ++world) {
    SCOPED_TRACE(world);
    std::set<std::pair<int, int>> met;
    for (int round = 0; round < RoundsOf(world); ++round) {
      int idle = 0;
      for (int rank = 0; rank < world; ++rank) {
        const std::optional<int> peer = PeerOf(rank, round, world);
        if (!peer.has_value()) {
          ++idle;
          continue;
        }
        ASSERT_GE(*peer, 0);
        ASSERT_LT(*peer, world);
        ASSERT_NE(*peer, rank);
        EXPECT_EQ(PeerOf(*peer, round, world), rank);
        if (rank < *peer) {
          EXPECT_TRUE(met.emplace(rank, *peer).second)
              << rank << " and " << *peer << " met before round " << round;
        }
      }
      EXPECT_EQ(idle, world % 2);
    }
    EXPECT_EQ(met.size(), static_cast<size_t>(world) * (world - 1) / 2);
  }
}

}  // namespace
}  // namespace cohort::trainer
