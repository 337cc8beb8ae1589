#include "common/duration_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"

namespace cohort {
namespace {

using ::testing::HasSubstr;

TEST(DurationTextTest, ReadsWhatPeopleWrite) {
  EXPECT_THAT(ParseDuration("90s"), IsOkAndHolds(absl::Seconds(90)));
  EXPECT_THAT(ParseDuration("1.5m"), IsOkAndHolds(absl::Seconds(90)));
  EXPECT_THAT(ParseDuration("2h"), IsOkAndHolds(absl::Hours(2)));
  EXPECT_THAT(ParseDuration("500ms"), IsOkAndHolds(absl::Milliseconds(500)));
  EXPECT_THAT(ParseDuration("1d"), IsOkAndHolds(absl::Hours(24)));
  EXPECT_THAT(ParseDuration("1h30m"), IsOkAndHolds(absl::Minutes(90)));
  EXPECT_THAT(ParseDuration("10"), IsOkAndHolds(absl::Seconds(10)));
  EXPECT_THAT(ParseDuration("0"), IsOkAndHolds(absl::ZeroDuration()));
  EXPECT_THAT(ParseDuration("0.25"), IsOkAndHolds(absl::Milliseconds(250)));
}

TEST(DurationTextTest, RefusesTheRestAndSaysWhatIsAccepted) {
  for (const char* text :
       {"", "-1s", "s", "1x", "1 s", "1.5.5s", "inf", "nan", "1e3", "999999d",
        "99999999999999999999s", "1h-30m"}) {
    EXPECT_THAT(
        ParseDuration(text),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("write 90s")))
        << text;
  }
}

TEST(DurationTextTest, NamesTheColumn) {
  const auto expect = [](const char* text, const char* what) {
    EXPECT_THAT(ParseDuration(text),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what)))
        << text;
  };
  expect("soon", "column 1: expected a number");
  expect("1h-30m", "column 2: expected a unit");
  expect("1h30x", "column 5: expected a unit");
  expect("  1h1.5.5m", "column 5: expected a number");
  expect("5 s", "column 2: expected a unit");
  expect("", "column 1: expected a number");
  expect("999999999999h", "column 1: longer than a hundred years");
  expect("99999999999999999999s", "column 1: longer than a hundred years");
  expect("1h30", "column 5: expected a unit");
  expect("1s40000d", "column 3: longer than a hundred years");
}

TEST(DurationTextTest, PrintsWhatReadsBack) {
  for (const absl::Duration duration :
       {absl::ZeroDuration(), absl::Milliseconds(500), absl::Seconds(90),
        absl::Hours(50) + absl::Milliseconds(1500), absl::Microseconds(7)}) {
    EXPECT_THAT(ParseDuration(DurationToText(duration)),
                IsOkAndHolds(duration));
  }
  EXPECT_EQ(DurationToText(absl::Seconds(1) + absl::Nanoseconds(7)), "1s");
}

}  // namespace
}  // namespace cohort
