#include "common/key_values.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"

namespace cohort {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(KeyValuesTest, ReadsPairs) {
  EXPECT_THAT(*ParseKeyValues("b=2, a = x=y,c="),
              ElementsAre(Pair("a", "x=y"), Pair("b", "2"), Pair("c", "")));
  EXPECT_THAT(*ParseKeyValues(" "), IsEmpty());
}

TEST(KeyValuesTest, NamesTheBadPart) {
  EXPECT_THAT(ParseKeyValues("a=1,b"), StatusIs(kInvalid, HasSubstr("\"b\"")));
  EXPECT_THAT(ParseKeyValues("=1"), StatusIs(kInvalid, HasSubstr("\"=1\"")));
  EXPECT_THAT(ParseKeyValues("a=1,"), StatusIs(kInvalid));
  EXPECT_THAT(ParseKeyValues("a=1,a=2"),
              StatusIs(kInvalid, HasSubstr("\"a=2\" gives its key")));
}

}  // namespace
}  // namespace cohort
