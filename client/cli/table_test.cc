#include "client/cli/table.h"

#include "gtest/gtest.h"

namespace cohort::cli {
namespace {

TEST(Table, AlignsColumnsAndEndsLinesCleanly) {
  Table table({"ID", "NAME", "LAST"});
  table.Add({"1", "long name", ""});
  table.Add({"22", "ä", "x"});
  EXPECT_EQ(table.ToString(),
            "ID  NAME       LAST\n"
            "1   long name  -\n"
            "22  ä          x\n");
}

TEST(Table, LeavesNoSpacesWhereTheLastCellIsShort) {
  Table table({"A", "LONG HEADER"});
  table.Add({"1", "2"});
  EXPECT_EQ(table.ToString(), "A  LONG HEADER\n1  2\n");
}

TEST(Table, CutsLinesAndLeavesOutColumnsThatDoNotFit) {
  Table table({"ID", "NAME", "REASON", "MORE"});
  table.Add({"1", "ann", "long words", "x"});
  EXPECT_EQ(table.ToString(16), "ID  NAME  REASON\n1   ann   long w\n");
  EXPECT_EQ(table.ToString(15), "ID  NAME\n1   ann\n");
  EXPECT_EQ(table.ToString(1), "I\n1\n");
}

TEST(Table, ShowsNothingThatDrivesATerminal) {
  Table table({"A"});
  table.Add({"x\ny"});
  EXPECT_EQ(table.ToString(), "A\nx y\n");
}

}  // namespace
}  // namespace cohort::cli
