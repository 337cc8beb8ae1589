#include "common/fault_point.h"

#include "gtest/gtest.h"

namespace cohort {
namespace {

TEST(FaultPointsTest, NeverFiresUnarmed) {
  FaultPoints faults;
  EXPECT_FALSE(faults.Fires("store.append"));
  EXPECT_EQ(faults.fired("store.append"), 0);
}

TEST(FaultPointsTest, FiresAsArmedAndCounts) {
  FaultPoints faults;
  faults.Arm("store.append", /*skip=*/1, /*times=*/2);
  EXPECT_FALSE(faults.Fires("store.append"));
  EXPECT_FALSE(faults.Fires("store.load"));
  EXPECT_TRUE(faults.Fires("store.append"));
  EXPECT_TRUE(faults.Fires("store.append"));
  EXPECT_FALSE(faults.Fires("store.append"));
  EXPECT_EQ(faults.fired("store.append"), 2);
  EXPECT_EQ(faults.asked("store.append"), 4);
  EXPECT_EQ(faults.asked("store.load"), 1);
}

TEST(FaultPointsTest, DisarmsAndKeepsTheCount) {
  FaultPoints faults;
  faults.Arm("x", 0, 10);
  EXPECT_TRUE(faults.Fires("x"));
  faults.Disarm("x");
  EXPECT_FALSE(faults.Fires("x"));
  EXPECT_EQ(faults.fired("x"), 1);
}

}  // namespace
}  // namespace cohort
