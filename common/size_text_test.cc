#include "common/size_text.h"

#include <cstdint>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"

namespace cohort {
namespace {

using ::testing::HasSubstr;

TEST(SizeTextTest, ReadsWhatPeopleWrite) {
  EXPECT_THAT(ParseSize("0"), IsOkAndHolds(0));
  EXPECT_THAT(ParseSize("123"), IsOkAndHolds(123));
  EXPECT_THAT(ParseSize("123B"), IsOkAndHolds(123));
  EXPECT_THAT(ParseSize("1k"), IsOkAndHolds(1000));
  EXPECT_THAT(ParseSize("512MB"), IsOkAndHolds(512'000'000));
  EXPECT_THAT(ParseSize("64GiB"), IsOkAndHolds(int64_t{64} << 30));
  EXPECT_THAT(ParseSize("64gi"), IsOkAndHolds(int64_t{64} << 30));
  EXPECT_THAT(ParseSize(" 1.5 TiB "), IsOkAndHolds(int64_t{3} << 39));
  EXPECT_THAT(ParseSize("0.5k"), IsOkAndHolds(500));
}

TEST(SizeTextTest, RefusesTheRestAndSaysWhatIsAccepted) {
  for (const char* text : {"", "-1", "GiB", "1x", "1kk", "1bb", "1.2.3k", "1e3",
                           "nan", "99999999P", "1i"}) {
    EXPECT_THAT(ParseSize(text), StatusIs(absl::StatusCode::kInvalidArgument,
                                          HasSubstr("write 64GiB")))
        << text;
  }
}

TEST(SizeTextTest, PrintsTheLargestUnit) {
  EXPECT_EQ(SizeToText(0), "0B");
  EXPECT_EQ(SizeToText(1023), "1023B");
  EXPECT_EQ(SizeToText(int64_t{64} << 30), "64GiB");
  EXPECT_EQ(SizeToText(int64_t{3} << 29), "1.5GiB");
  EXPECT_EQ(SizeToText((int64_t{1} << 30) - 1), "1GiB");
  EXPECT_EQ(SizeToText(std::numeric_limits<int64_t>::max()), "8192PiB");
}

TEST(SizeTextTest, RoundsAsItIsTold) {
  const int64_t odd = (int64_t{64} << 30) - (10 << 20);
  EXPECT_EQ(SizeToText(odd), "64GiB");
  EXPECT_EQ(SizeToText(odd, SizeRounding::kDown), "63.9GiB");
  EXPECT_EQ(SizeToText(odd, SizeRounding::kUp), "64GiB");
  EXPECT_EQ(SizeToText(odd + (20 << 20), SizeRounding::kUp), "64.1GiB");
  EXPECT_EQ(SizeToText(odd, SizeRounding::kNone), "65526MiB");
  EXPECT_EQ(SizeToText(10 << 20, SizeRounding::kUp), "10MiB");
  EXPECT_EQ(SizeToText(0, SizeRounding::kNone), "0B");
}

TEST(SizeTextTest, UnroundedReadsBackAsItWas) {
  for (const int64_t bytes :
       {int64_t{1}, int64_t{1023}, int64_t{1536}, int64_t{1537},
        (int64_t{1} << 40) + 1, int64_t{3} << 29, (int64_t{5} << 30) / 10}) {
    EXPECT_THAT(ParseSize(SizeToText(bytes, SizeRounding::kNone)),
                IsOkAndHolds(bytes));
  }
}

TEST(SizeTextTest, RoundedBoundsHold) {
  for (int64_t bytes = 1; bytes < int64_t{1} << 52; bytes = bytes * 7 / 3 + 5) {
    const std::string up = SizeToText(bytes, SizeRounding::kUp);
    const std::string down = SizeToText(bytes, SizeRounding::kDown);
    EXPECT_GE(ParseSize(up).value() + 1, bytes) << up;
    EXPECT_LE(ParseSize(down).value(), bytes) << down;
  }
}

}  // namespace
}  // namespace cohort
