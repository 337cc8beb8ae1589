#include "trainer/comm/gpu_stream.h"

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace cohort::trainer {
namespace {

// A wake-up is late by the timer's slack.
constexpr absl::Duration kSlack = absl::Microseconds(50);

TEST(PaceTest, IsLateByAnEighthOfWhatItWaitsForAtMost) {
  absl::Duration before;
  for (absl::Duration elapsed = absl::Microseconds(1);
       elapsed < absl::Minutes(1); elapsed += elapsed / 3) {
    const absl::Duration sleep = Pace::SleepAfter(elapsed);
    EXPECT_GE(sleep, before) << elapsed;
    if (sleep > absl::ZeroDuration()) {
      EXPECT_LE(sleep + kSlack, elapsed / 8) << elapsed;
    }
    before = sleep;
  }
}

TEST(PaceTest, SpinsForWhatIsShortAndSleepsForWhatIsLong) {
  EXPECT_EQ(Pace::SleepAfter(absl::Microseconds(100)), absl::ZeroDuration());
  EXPECT_GT(Pace::SleepAfter(absl::Milliseconds(1)), absl::ZeroDuration());
  EXPECT_GT(Pace::SleepAfter(absl::Hours(1)), absl::Microseconds(900));
  EXPECT_LE(Pace::SleepAfter(absl::Hours(1)), absl::Milliseconds(1));
}

}  // namespace
}  // namespace cohort::trainer
