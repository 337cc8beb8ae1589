#include "common/label_selector.h"

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"

namespace cohort {
namespace {

using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

bool Matches(const std::string& text,
             const std::map<std::string, std::string>& labels) {
  const auto selector = LabelSelector::Parse(text);
  if (!selector.ok()) {
    ADD_FAILURE() << text << ": " << selector.status();
    return false;
  }
  return selector->Matches(labels);
}

std::string Written(const std::string& text) {
  const auto selector = LabelSelector::Parse(text);
  return selector.ok() ? selector->ToString() : selector.status().ToString();
}

TEST(LabelSelectorTest, EachOperatorMeansWhatItSays) {
  EXPECT_TRUE(Matches("rack=r1", {{"rack", "r1"}}));
  EXPECT_FALSE(Matches("rack=r1", {{"rack", "r2"}}));
  EXPECT_FALSE(Matches("rack=r1", {}));

  EXPECT_TRUE(Matches("rack!=r1", {{"rack", "r2"}}));
  EXPECT_TRUE(Matches("rack != r1", {}));
  EXPECT_FALSE(Matches("rack!=r1", {{"rack", "r1"}}));

  EXPECT_TRUE(Matches("rack in (r1,r2)", {{"rack", "r2"}}));
  EXPECT_FALSE(Matches("rack in (r1, r2)", {{"rack", "r3"}}));
  EXPECT_FALSE(Matches("rack in (r1)", {}));

  EXPECT_TRUE(Matches("rack !in (r1,r2)", {{"rack", "r3"}}));
  EXPECT_TRUE(Matches("rack !in (r1,r2)", {}));
  EXPECT_FALSE(Matches("rack !in (r1,r2)", {{"rack", "r1"}}));

  EXPECT_TRUE(Matches("rack exists", {{"rack", ""}}));
  EXPECT_TRUE(Matches("exists rack", {{"rack", "r1"}}));
  EXPECT_FALSE(Matches("rack exists", {{"zone", "a"}}));
}

TEST(LabelSelectorTest, AllRequirementsMustHold) {
  const std::string text = "rack in (r1,r2), zone=a, exists gpu";
  EXPECT_TRUE(Matches(text, {{"rack", "r1"}, {"zone", "a"}, {"gpu", "x"}}));
  EXPECT_FALSE(Matches(text, {{"rack", "r1"}, {"zone", "b"}, {"gpu", "x"}}));
  EXPECT_TRUE(Matches("  ", {}));
}

TEST(LabelSelectorTest, KeywordsAreLabelsToo) {
  EXPECT_TRUE(Matches("exists exists", {{"exists", ""}}));
  EXPECT_TRUE(Matches("exists=1", {{"exists", "1"}}));
  EXPECT_TRUE(Matches("exists in (1)", {{"exists", "1"}}));
  EXPECT_TRUE(Matches("exists in", {{"in", "1"}}));
  EXPECT_TRUE(Matches("in in (in)", {{"in", "in"}}));
}

TEST(LabelSelectorTest, QuotesHoldWhatAWordCannot) {
  EXPECT_TRUE(Matches("model=\"A, (b) = c!\"", {{"model", "A, (b) = c!"}}));
  EXPECT_TRUE(Matches("model=\"\"", {{"model", ""}}));
  EXPECT_EQ(Written("model=\"A b\""), "model=\"A b\"");
}

TEST(LabelSelectorTest, EqualOnesAreEqualHoweverWritten) {
  EXPECT_EQ(*LabelSelector::Parse("b=1,a in (y , x,y)"),
            *LabelSelector::Parse("a in (x,y), b in (1), b = 1"));
  EXPECT_EQ(*LabelSelector::ParseAll({"b=1", "a exists"}),
            *LabelSelector::Parse("exists a,b=1"));
}

TEST(LabelSelectorTest, IsWrittenAsItIsRead) {
  for (const char* text :
       {"a=1", "a!=1", "a in (1,2)", "a !in (1,2)", "a exists", ""}) {
    EXPECT_EQ(Written(text), text);
  }
}

TEST(LabelSelectorTest, ErrorsNameTheColumnAndWhatWasExpected) {
  const auto expect = [](const std::string& text, const std::string& error) {
    EXPECT_THAT(LabelSelector::Parse(text),
                StatusIs(kInvalid, HasSubstr(error)))
        << text;
  };
  expect("rack=", "column 6: expected a value, but the text ends");
  expect("rack=,b=1", "column 6: expected a value, not \",\"");
  expect("=r1", "column 1: expected a label, not \"=\"");
  expect("rack", "column 5: expected =, !=, in, !in or exists, but the text");
  expect("rack notin (a)",
         "column 6: expected =, !=, in, !in or exists, not \"notin\"");
  expect("rack !exists", "column 6: expected =, !=, in, !in or exists, not");
  expect("rack in r1", "column 9: expected ( and values, not \"r1\"");
  expect("rack in (r1 r2)", "column 13: expected , or ), not \"r2\"");
  expect("rack in ()", "column 10: expected a value, not \")\"");
  expect("rack in (a", "column 11: expected , or ), but the text ends");
  expect("a=1 b=2", "column 5: expected , or the end, not \"b\"");
  expect("a=1,", "column 5: expected a label, but the text ends");
  expect("a==1", "column 3: expected a value, not \"=\"");
  expect("a=\"1", "column 3: the quotes that open here are not closed");
  expect("\xc3\xa4=\xc3\xa4,b", "column 6: expected =");
  expect("a=\x01", "column 3: expected a value, \"\\x01\" is not printable");
  expect(std::string(65, 'k') + "=1",
         "column 1: expected a label of at most 64 bytes, this has 65");
}

TEST(LabelSelectorTest, HasBounds) {
  std::string many = "a0=1";
  for (int i = 1; i < 65; ++i) absl::StrAppend(&many, ",a", i, "=1");
  EXPECT_THAT(LabelSelector::Parse(many),
              StatusIs(kInvalid, HasSubstr("at most 64 requirements")));
  std::string list = "a in (0";
  for (int i = 1; i < 257; ++i) absl::StrAppend(&list, ",", i);
  EXPECT_THAT(LabelSelector::Parse(list + ")"),
              StatusIs(kInvalid, HasSubstr("after 256 values")));
}

TEST(LabelSelectorTest, OneOfSeveralTextsIsNamed) {
  EXPECT_THAT(
      LabelSelector::ParseAll({"a=1", "b ="}),
      StatusIs(kInvalid, HasSubstr("selector \"b =\": column 4: expected")));
}

TEST(LabelSelectorTest, SaysWhichRequirementFails) {
  const auto selector = *LabelSelector::Parse("zone=a,rack=r1");
  const std::string zone = "b";
  const std::string rack = "r1";
  const auto* failing = selector.FirstFailing(
      [&](const std::string& key) { return key == "zone" ? &zone : &rack; });
  ASSERT_NE(failing, nullptr);
  EXPECT_EQ(failing->ToString(), "zone=a");
}

}  // namespace
}  // namespace cohort
