#include "common/backoff.h"

#include <algorithm>

#include "gtest/gtest.h"

#include "common/testing/seed.h"

namespace cohort {
namespace {

TEST(BackoffTest, GrowsToItsMaximumAndStartsAgain) {
  SeededRandom random(1);
  Backoff backoff({.initial = absl::Seconds(1),
                   .max = absl::Seconds(5),
                   .multiplier = 2,
                   .jitter = 0},
                  random);
  EXPECT_EQ(backoff.Next(), absl::Seconds(1));
  EXPECT_EQ(backoff.Next(), absl::Seconds(2));
  EXPECT_EQ(backoff.Next(), absl::Seconds(4));
  EXPECT_EQ(backoff.Next(), absl::Seconds(5));
  EXPECT_EQ(backoff.Next(), absl::Seconds(5));
  backoff.Reset();
  EXPECT_EQ(backoff.Next(), absl::Seconds(1));
}

TEST(BackoffTest, JitterOnlyShortens) {
  SeededRandom random(TestSeed());
  Backoff backoff(
      {.initial = absl::Seconds(1), .max = absl::Seconds(1), .jitter = 0.5},
      random);
  absl::Duration shortest = absl::InfiniteDuration();
  for (int i = 0; i < 1000; ++i) {
    const absl::Duration wait = backoff.Next();
    ASSERT_GE(wait, absl::Milliseconds(500));
    ASSERT_LE(wait, absl::Seconds(1));
    shortest = std::min(shortest, wait);
  }
  EXPECT_LT(shortest, absl::Milliseconds(900));
}

}  // namespace
}  // namespace cohort
