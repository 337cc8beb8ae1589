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

TEST(Table, ShowsNothingThatDrivesATerminal) {
  Table table({"A"});
  table.Add({"x\ny"});
  EXPECT_EQ(table.ToString(), "A\nx y\n");
}

}  // namespace
}  // namespace cohort::cli
