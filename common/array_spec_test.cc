#include "common/array_spec.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"

namespace cohort {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void ExpectError(absl::string_view text, const char* part) {
  EXPECT_THAT(ArraySpec::Parse(text),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(part)))
      << text;
}

TEST(ArraySpec, ReadsRangesListsAndSteps) {
  EXPECT_THAT(ArraySpec::Parse("7")->indices, ElementsAre(7));
  EXPECT_THAT(ArraySpec::Parse("2-4")->indices, ElementsAre(2, 3, 4));
  EXPECT_THAT(ArraySpec::Parse("0,3,7-9")->indices, ElementsAre(0, 3, 7, 8, 9));
  EXPECT_THAT(ArraySpec::Parse("9,1")->indices, ElementsAre(1, 9));
  EXPECT_THAT(ArraySpec::Parse("0-9:4")->indices, ElementsAre(0, 4, 8));
  EXPECT_EQ(ArraySpec::Parse("0-9")->at_once, std::nullopt);
  EXPECT_EQ(ArraySpec::Parse("0-99%8")->at_once, 8);
  EXPECT_EQ(ArraySpec::Parse("0-99999")->indices.size(), 100'000u);
  EXPECT_THAT(ArraySpec::Parse("999999999")->indices, ElementsAre(999999999));
}

TEST(ArraySpec, SaysWhereItWentWrong) {
  ExpectError("", "column 1: expected an index");
  ExpectError("0-", "column 3: expected the last index");
  ExpectError("5-2", "column 3: the range ends with 2");
  ExpectError("0-9:0", "column 5: the step is at least 1");
  ExpectError("0-9%", "column 5: expected how many may run at once");
  ExpectError("0-9%0", "column 5: at least 1");
  ExpectError("0-9%8x", "column 6: expected");
  ExpectError("0,,1", "column 3: expected an index");
  ExpectError("0-9,3", "column 5: the index 3 is there already");
  ExpectError(" 1", "column 1: expected an index");
  ExpectError("-1", "column 1: expected an index");
  ExpectError("1000000000", "column 1: an index can be at most 999999999");
  ExpectError("99999999999999999999999", "column 1");
}

TEST(ArraySpec, RefusesAbsurdCounts) {
  ExpectError("0-100000",
              "column 1: with it there are more than 100000 elements");
  ExpectError("0-999999999", "more than 100000 elements");
  ExpectError("0-99999,200000",
              "column 9: with it there are more than 100000 elements");
  ExpectError("0-9%100001", "at most 100000");
}

}  // namespace
}  // namespace cohort
