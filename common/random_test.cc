#include "common/random.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

#include "common/testing/seed.h"

namespace cohort {
namespace {

// The sequence is part of every recorded seed: it may never change.
TEST(SeededRandomTest, GivesOneSequenceForever) {
  SeededRandom random(0);
  EXPECT_EQ(random.Uint64(), 0xe220a8397b1dcdafULL);
  EXPECT_EQ(random.Uint64(), 0x6e789e6aa1b965f4ULL);
  EXPECT_EQ(SeededRandom(0).Bytes(10),
            std::string("\xaf\xcd\x1d\x7b\x39\xa8\x20\xe2\xf4\x65", 10));
}

TEST(SeededRandomTest, BelowStaysBelowAndReachesAll) {
  SeededRandom random(TestSeed());
  std::set<uint64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t n = random.Below(7);
    ASSERT_LT(n, 7u);
    seen.insert(n);
  }
  EXPECT_EQ(seen.size(), 7u);
  EXPECT_EQ(random.Below(1), 0u);
}

TEST(SeededRandomTest, DoubleIsUniformFromZeroToOne) {
  SeededRandom random(TestSeed());
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const double x = random.Double();
    ASSERT_GE(x, 0);
    ASSERT_LT(x, 1);
    sum += x;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.05);
}

TEST(SystemRandomTest, DoesNotRepeat) {
  SystemRandom random;
  EXPECT_NE(random.Bytes(16), random.Bytes(16));
  EXPECT_EQ(random.Bytes(1000).size(), 1000u);
  EXPECT_EQ(random.Bytes(0), "");
}

}  // namespace
}  // namespace cohort
