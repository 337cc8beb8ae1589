#include "trainer/comm/gpu_stream.h"

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace cohort::trainer {
namespace {

// A wake-up is late by the timer's slack.
constexpr absl::Duration kSlack = absl::Microseconds(50);

TEST(PollBackoffTest, IsLateByAnEighthOfWhatItWaitsForAtMost) {
  absl::Duration before;
  for (absl::Duration elapsed = absl::Microseconds(1);
       elapsed < absl::Minutes(1); elapsed += elapsed / 3) {
    const absl::Duration sleep = PollBackoff::SleepAfter(elapsed);
    EXPECT_GE(sleep, before) << elapsed;
    if (sleep > absl::ZeroDuration()) {
      EXPECT_LE(sleep + kSlack, elapsed / 8) << elapsed;
    }
    before = sleep;
  }
}

TEST(PollBackoffTest, SpinsForWhatIsShortAndSleepsForWhatIsLong) {
  EXPECT_EQ(PollBackoff::SleepAfter(absl::Microseconds(100)),
            absl::ZeroDuration());
  EXPECT_GT(PollBackoff::SleepAfter(absl::Milliseconds(1)),
            absl::ZeroDuration());
  EXPECT_GT(PollBackoff::SleepAfter(absl::Hours(1)), absl::Microseconds(900));
  EXPECT_LE(PollBackoff::SleepAfter(absl::Hours(1)), absl::Milliseconds(1));
}

}  // namespace
}  // namespace cohort::trainer
