#include "common/printable_text.h"

#include <string>

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

TEST(PrintableText, ANameHasNoSpacesAtItsEnds) {
  EXPECT_TRUE(IsNameText("NVIDIA H100"));
  EXPECT_FALSE(IsNameText(""));
  EXPECT_FALSE(IsNameText("  "));
  EXPECT_FALSE(IsNameText(" H100"));
  EXPECT_FALSE(IsNameText("H100 "));
  EXPECT_FALSE(IsNameText("H\n100"));
}

TEST(PrintableText, IsCutBetweenCharacters) {
  EXPECT_EQ(Cut("abc", 3), "abc");
  EXPECT_EQ(Cut("abcd", 3), "abc");
  EXPECT_EQ(Cut("a\xc3\xb6", 2), "a");
  EXPECT_EQ(Cut(std::string(9, '\x80'), 3), "");
}

TEST(PrintableText, AnErrorShowsWhatWasGivenAndNoMoreThanThat) {
  EXPECT_EQ(Shown("a \"b\" K\xc3\xb6ln"), "a \"b\" K\xc3\xb6ln");
  EXPECT_EQ(Shown("a\nb\xff"), "a\\nb\\xff");
  EXPECT_EQ(Shown(std::string(70'000, 'x')), std::string(128, 'x') + "...");
  EXPECT_EQ(Shown(std::string(127, 'x') + "\xc3\xb6"),
            std::string(127, 'x') + "...");
  EXPECT_EQ(Quoted("a b"), "\"a b\"");
}

TEST(PrintableText, AMessageIsOneLineThatSomebodyReads) {
  EXPECT_EQ(OneLine(" a\nb\r\tc\033[31m\n"), "a b  c?[31m");
  EXPECT_EQ(MessageLine("a\nb\x1b[31m"), "a b?[31m");
  const std::string line = MessageLine(std::string(70'000, 'x'));
  EXPECT_EQ(line.size(), 4'096u + 3);
}

}  // namespace
}  // namespace cohort
