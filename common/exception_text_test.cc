#include "common/exception_text.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

TEST(ExceptionTextTest, SaysWhenItWasRaised) {
  const absl::Time at = absl::FromUnixMicros(1'700'000'000'123'456);
  const std::string text =
      absl::StrCat("RuntimeError: (raised at noon)", RaisedText(at),
                   " (more)\nTraceback (raised at 2001-01-01T00:00:00Z)");
  EXPECT_EQ(RaisedAt(text), at);
  EXPECT_EQ(FirstLine(text),
            "RuntimeError: (raised at noon) (raised at "
            "2023-11-14T22:13:20.123456Z) (more)");
}

TEST(ExceptionTextTest, IsSilentWhereNothingIsKnown) {
  EXPECT_EQ(RaisedText(std::nullopt), "");
  EXPECT_EQ(RaisedAt(""), std::nullopt);
  EXPECT_EQ(RaisedAt("ValueError: x (raised at dawn)"), std::nullopt);
  EXPECT_EQ(RaisedAt("x\n (raised at 2001-01-01T00:00:00Z)"), std::nullopt);
  EXPECT_EQ(FirstLine("x"), "x");
}

}  // namespace
}  // namespace cohort
