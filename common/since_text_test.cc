#include "common/since_text.h"

#include <string>

#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"

namespace cohort {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'795'000'000);

TEST(SinceText, ReadsHowLongAgo) {
  EXPECT_THAT(ParseSince("10m", kNow), IsOkAndHolds(kNow - absl::Minutes(10)));
  EXPECT_THAT(ParseSince("1h30m", kNow),
              IsOkAndHolds(kNow - absl::Minutes(90)));
  EXPECT_THAT(ParseSince("0", kNow), IsOkAndHolds(kNow));
}

TEST(SinceText, ReadsATime) {
  const absl::Time time = absl::FromUnixSeconds(1'763'719'200);
  EXPECT_THAT(ParseSince("2025-11-21T10:00:00Z", kNow), IsOkAndHolds(time));
  EXPECT_THAT(ParseSince("2025-11-21T12:00:00+02:00", kNow),
              IsOkAndHolds(time));
  EXPECT_THAT(ParseSince("2025-11-21T10:00:00.5Z", kNow),
              IsOkAndHolds(time + absl::Milliseconds(500)));
}

TEST(SinceText, NamesWhatItCannotRead) {
  for (const char* text :
       {"", " ", "yesterday", "-5m", "2025-11-21", "2025-11-21T10:00:00",
        "2025-13-21T10:00:00Z", "infinite-past", "2025-11-21T10:00:00Z ",
        "10 bananas", "\x01"}) {
    EXPECT_THAT(
        ParseSince(text, kNow).status(),
        StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("10m")))
        << text;
  }
}

TEST(SinceText, RefusesATimeThatIsStillToCome) {
  const absl::Time soon =
      kNow + absl::Hours(1);  // where another clock is ahead
  EXPECT_THAT(ParseSince(absl::FormatTime(soon, absl::UTCTimeZone()), kNow),
              IsOkAndHolds(soon));
  EXPECT_THAT(ParseSince("2999-01-01T00:00:00Z", kNow),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       testing::HasSubstr("still to come")));
  COHORT_EXPECT_OK(ParseSince("1066-10-14T09:00:00Z", kNow));
}

TEST(SinceText, ReadsAMomentThatIsStillToCome) {
  EXPECT_THAT(ParseMoment("2999-01-01T00:00:00Z"),
              IsOkAndHolds(absl::FromUnixSeconds(32'472'144'000)));
  for (const char* text : {"", "10m", "2026-11-24", "infinite-future"}) {
    EXPECT_THAT(ParseMoment(text),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         testing::HasSubstr("with its zone")))
        << text;
  }
}

TEST(SinceText, NamesTheColumn) {
  const auto column = [](const char* text) {
    return std::string(ParseSince(text, kNow).status().message());
  };
  EXPECT_THAT(column(""), testing::HasSubstr("column 1:"));
  EXPECT_THAT(column("yesterday"), testing::HasSubstr("column 1:"));
  EXPECT_THAT(column("10x"), testing::HasSubstr("column 3:"));
  EXPECT_THAT(column("1h30my"), testing::HasSubstr("column 6:"));
  EXPECT_THAT(column("2025-11-21"), testing::HasSubstr("column 11:"));
  EXPECT_THAT(column("2025-13-21T10:00:00Z"), testing::HasSubstr("column 6:"));
  EXPECT_THAT(column("2025-11-21T25:00:00Z"), testing::HasSubstr("column 12:"));
  EXPECT_THAT(column("2025-11-21T10:00:00"), testing::HasSubstr("column 20:"));
}

}  // namespace
}  // namespace cohort
