#include "client/ignore_rules.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace cohort::client {
namespace {

struct Case {
  const char* rules;
  const char* name;  // a directory's ends in "/"
  bool is_ignored;
};

// From the text and the examples of gitignore(5); git's own answers.
const std::vector<Case> kCases = {
    // A blank line separates, # comments, \# and \! quote.
    {"", "a", false},
    {"\n\n", "a", false},
    {"#a", "#a", false},
    {"\\#a", "#a", true},
    {"!a", "!a", false},
    {"\\!a", "!a", true},
    // Trailing spaces, line ends and a byte order mark do not count.
    {"a  ", "a", true},
    {"a\\ ", "a ", true},
    {"a\\  ", "a ", true},
    {"a\t", "a", false},
    {"a\r\nb\r\n", "a", true},
    {"\xef\xbb\xbf"
     "a",
     "a", true},
    {" a", "a", false},
    // Without a slash: at any depth.
    {"a", "a", true},
    {"a", "x/y/a", true},
    {"a", "x/a/", true},
    {"a", "ab", false},
    {"a", "b/ab", false},
    {"*.o", "x.o", true},
    {"*.o", "x/y.o", true},
    {"*.o", ".o", true},
    {"*.o", "x.oo", false},
    // With one at the beginning or in the middle: where the file is.
    {"/a", "a", true},
    {"/a", "x/a", false},
    {"doc/frotz", "doc/frotz", true},
    {"doc/frotz", "a/doc/frotz", false},
    {"/doc/frotz", "doc/frotz", true},
    {"//a", "a", false},
    {"/", "a", false},
    // At the end only: directories.
    {"frotz/", "frotz/", true},
    {"frotz/", "a/frotz/", true},
    {"frotz/", "frotz", false},
    {"doc/frotz/", "doc/frotz/", true},
    {"doc/frotz/", "a/doc/frotz/", false},
    // The last one decides.
    {"*.o\n!x.o", "x.o", false},
    {"*.o\n!x.o", "y.o", true},
    {"!x.o\n*.o", "x.o", true},
    {"*\n!*/", "a/", false},
    {"/*\n!/foo", "foo", false},
    {"/*\n!/foo", "bar", true},
    // *, ? and [] stand for no slash.
    {"foo/*", "foo/test.json", true},
    {"foo/*", "foo/bar/", true},
    {"foo/*", "foo/bar/hello.c", false},
    {"foo*bar/x", "foo/bar/x", false},
    {"foo?bar", "foo/bar", false},
    {"a?c", "abc", true},
    {"a?c", "ac", false},
    {"*a*b*c", "xaxbxc", true},
    {"*a*b*c", "xaxcxb", false},
    {"*", ".hidden", true},
    {"[abc].py", "b.py", true},
    {"[abc].py", "d.py", false},
    {"[!abc].py", "d.py", true},
    {"[^abc].py", "a.py", false},
    {"[a-cx-z]1", "y1", true},
    {"[a-cx-z]1", "m1", false},
    {"[]]", "]", true},
    {"[!]]", "]", false},
    {"[a-]", "-", true},
    {"[\\]]", "]", true},
    {"[[:digit:]]*", "1a", true},
    {"[[:digit:]]*", "a1", false},
    {"[[:alpha:]_]x", "_x", true},
    {"[a", "[a", false},
    {"[a", "a", false},
    {"\\*", "*", true},
    {"\\*", "a", false},
    {"a\\", "a", false},
    {"a\\", "a\\", false},
    // ** between slashes stands for any number of directories.
    {"**/foo", "foo", true},
    {"**/foo", "a/b/foo", true},
    {"**/foo/bar", "foo/bar", true},
    {"**/foo/bar", "a/foo/bar", true},
    {"**/foo/bar", "a/foo/b/bar", false},
    {"abc/**", "abc/x", true},
    {"abc/**", "abc/x/y", true},
    {"abc/**", "abc/", false},
    {"abc/**", "x/abc/y", false},
    {"a/**/b", "a/b", true},
    {"a/**/b", "a/x/b", true},
    {"a/**/b", "a/x/y/b", true},
    {"a/**/b", "a/x/c", false},
    {"a/**/b", "x/a/b", false},
    {"**", "a/b", true},
    {"/**", "a", true},
    {"**/", "a/", true},
    {"**/", "a", false},
    // Elsewhere it is a *.
    {"a**b/c", "axxb/c", true},
    {"a**b/c", "a/b/c", false},
    {"a**", "ab", true},
};

TEST(IgnoreRulesTest, MatchesAsGitignoreSays) {
  for (const Case& each : kCases) {
    std::string name = each.name;
    const bool is_directory = name.back() == '/';
    if (is_directory) name.pop_back();
    const IgnoreRules rules(each.rules);
    const auto* rule = rules.Find(name, is_directory);
    EXPECT_EQ(rule != nullptr && !rule->is_negated, each.is_ignored)
        << "\"" << each.rules << "\" and \"" << each.name << "\"";
  }
}

TEST(IgnoreRulesTest, NamesThePatternAndItsLine) {
  const IgnoreRules rules("# objects\n\n*.o\n!main.o\n");
  EXPECT_EQ(rules.Find("a.o", false)->line, 3);
  EXPECT_EQ(rules.Find("a.o", false)->text, "*.o");
  EXPECT_TRUE(rules.Find("main.o", false)->is_negated);
  EXPECT_EQ(rules.Find("a.c", false), nullptr);
}

TEST(IgnoreRulesTest, ManyStarsTakeNoLongerThanTheProductOfTheLengths) {
  std::string pattern;
  std::string deep;
  for (int i = 0; i < 200; ++i) {
    pattern += "*a";
    deep += "**/a/";
  }
  const IgnoreRules rules(pattern + "b\n" + deep + "b\n");
  std::string path = "a";
  for (int i = 0; i < 500; ++i) path += "/a";
  EXPECT_EQ(rules.Find(std::string(4000, 'a'), false), nullptr);
  EXPECT_EQ(rules.Find(path, false), nullptr);
}

}  // namespace
}  // namespace cohort::client
