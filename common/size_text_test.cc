#include "common/size_text.h"

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
}

}  // namespace
}  // namespace cohort
