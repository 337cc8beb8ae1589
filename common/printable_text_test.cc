#include "common/printable_text.h"

#include "gtest/gtest.h"

namespace cohort {
namespace {

TEST(PrintableText, IsOneLineWithoutControlCharacters) {
  EXPECT_TRUE(IsPrintable("node 7"));
  EXPECT_TRUE(IsPrintable("\xff"));
  EXPECT_FALSE(IsPrintable("a\nb"));
  EXPECT_FALSE(IsPrintable("\x1b[31m"));
  EXPECT_FALSE(IsPrintable("\x7f"));
}

TEST(PrintableText, Utf8IsWhatProtobufTakes) {
  EXPECT_TRUE(IsPrintableUtf8(""));
  EXPECT_TRUE(IsPrintableUtf8("K\xc3\xb6ln \xe2\x82\xac \xf0\x9f\x98\x80"));
  EXPECT_FALSE(IsPrintableUtf8("a\tb"));
  EXPECT_TRUE(IsUtf8("\xc2\x9b"));
  EXPECT_TRUE(IsPrintableUtf8("\xc2\xa0"));
  EXPECT_FALSE(IsPrintableUtf8("\xc2\x9b")) << "a control character of C1";
  EXPECT_FALSE(IsPrintableUtf8("\xff"));
  EXPECT_FALSE(IsPrintableUtf8("\xc3"));
  EXPECT_FALSE(IsPrintableUtf8("\xc0\xaf")) << "longer than need be";
  EXPECT_FALSE(IsPrintableUtf8("\xe0\x80\xaf"));
  EXPECT_FALSE(IsPrintableUtf8("\xed\xa0\x80")) << "half a pair of UTF-16";
  EXPECT_FALSE(IsPrintableUtf8("\xf5\x80\x80\x80"));
}

}  // namespace
}  // namespace cohort
