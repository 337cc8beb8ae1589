#include "common/link_target.h"

#include "gtest/gtest.h"

namespace cohort {
namespace {

TEST(LinkTargetTest, StaysInTheTreeByItsTextAlone) {
  EXPECT_TRUE(StaysInTree("file", 0));
  EXPECT_TRUE(StaysInTree("./a//b/.", 0));
  EXPECT_TRUE(StaysInTree("..file", 0));
  EXPECT_TRUE(StaysInTree("../../a", 2));
  EXPECT_TRUE(StaysInTree("./..", 1));
}

TEST(LinkTargetTest, RefusesWhatCouldLeadOut) {
  EXPECT_FALSE(StaysInTree("", 9));
  EXPECT_FALSE(StaysInTree("/", 9));
  EXPECT_FALSE(StaysInTree("/etc/passwd", 9));
  EXPECT_FALSE(StaysInTree("..", 0));
  EXPECT_FALSE(StaysInTree("../../a", 1));
  // Where `a` is a link to a directory higher up this would lead out.
  EXPECT_FALSE(StaysInTree("a/..", 9));
  EXPECT_FALSE(StaysInTree("a/b/../../c", 9));
}

}  // namespace
}  // namespace cohort
