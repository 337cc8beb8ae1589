#include "common/taint.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"

namespace cohort {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsNull;
using ::testing::Pointee;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(TaintTest, HasAKeyAndPerhapsAValue) {
  EXPECT_EQ(*Taint::Parse("gpu"), (Taint{"gpu", ""}));
  EXPECT_EQ(*Taint::Parse(" team = vision "), (Taint{"team", "vision"}));
  EXPECT_EQ(Taint::Parse("team=vision")->ToString(), "team=vision");
  EXPECT_EQ(Taint::Parse("gpu")->ToString(), "gpu");
}

TEST(TaintTest, ErrorsNameTheColumnAndWhatWasExpected) {
  EXPECT_THAT(Taint::Parse(""),
              StatusIs(kInvalid, HasSubstr("column 1: expected a key, but")));
  EXPECT_THAT(Taint::Parse("a="),
              StatusIs(kInvalid, HasSubstr("column 3: expected a value")));
  EXPECT_THAT(
      Taint::Parse("a:NoSchedule=x,b"),
      StatusIs(kInvalid, HasSubstr("column 15: expected the end, not \",\"")));
  EXPECT_THAT(Toleration::Parse("a b"),
              StatusIs(kInvalid, HasSubstr("column 3: expected = or the end")));
  EXPECT_THAT(ParseTaints({"a", "=b"}),
              StatusIs(kInvalid, HasSubstr("taint \"=b\": column 1")));
}

TEST(TaintTest, AKeyToleratesAnyValueAndAValueOnlyItself) {
  const Toleration any = *Toleration::Parse("team");
  const Toleration vision = *Toleration::Parse("team=vision");
  EXPECT_TRUE(any.Tolerates({"team", ""}));
  EXPECT_TRUE(any.Tolerates({"team", "speech"}));
  EXPECT_FALSE(any.Tolerates({"gpu", ""}));
  EXPECT_TRUE(vision.Tolerates({"team", "vision"}));
  EXPECT_FALSE(vision.Tolerates({"team", "speech"}));
  EXPECT_FALSE(vision.Tolerates({"team", ""}));
}

TEST(TaintTest, EachTaintMustBeTolerated) {
  const auto taints = *ParseTaints({"team=vision", "gpu"});
  const Toleration team = *Toleration::Parse("team");
  const Toleration gpu = *Toleration::Parse("gpu");
  EXPECT_THAT(FirstUntolerated(taints, {team, gpu}), IsNull());
  EXPECT_THAT(FirstUntolerated(taints, {gpu}),
              Pointee(Taint{"team", "vision"}));
  EXPECT_THAT(FirstUntolerated({}, {}), IsNull());
}

TEST(TaintTest, ListsAreOrderedAndHaveNoDoubles) {
  EXPECT_THAT(*ParseTaints({"b", "a=1", "b"}),
              ElementsAre(Taint{"a", "1"}, Taint{"b", ""}));
}

}  // namespace
}  // namespace cohort
