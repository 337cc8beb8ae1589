#include "common/spread.h"

#include "gtest/gtest.h"

namespace cohort::spread_test {

TEST(SpreadTest, GivesEachProcessTheNextRanksAndEvenly) {
  for (const int ranks : {1, 2, 7, 100, 10'000}) {
    for (const int processes : {1, 2, 3, 7, 99, 100, 10'000}) {
      if (processes > ranks) continue;
      SCOPED_TRACE(testing::Message() << ranks << " in " << processes);
      const Spread spread(ranks, processes);
      int next = 0;
      for (int process = 0; process < processes; ++process) {
        ASSERT_EQ(spread.FirstOf(process), next);
        const int count = spread.CountOf(process);
        ASSERT_GE(count, ranks / processes);
        ASSERT_LE(count, (ranks + processes - 1) / processes);
        for (int i = 0; i < count; ++i, ++next) {
          ASSERT_EQ(spread.ProcessOf(next), process);
          ASSERT_EQ(spread.ActorOf(next), static_cast<uint32_t>(i));
        }
      }
      EXPECT_EQ(next, ranks);
      EXPECT_EQ(spread.is_shared(), ranks != processes);
    }
  }
}

}  // namespace cohort::spread_test
