#include "head/state/package_table.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/manual_executor.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class PackageTableTest : public ::testing::Test {
 protected:
  PackageTableTest() {
    PackageRecord record;
    record.set_hash("h");
    table_.Add(record);
  }

  ManualExecutor time_;
  PackageTable table_{{.count_max = 3,
                       .bytes_max = 1'000,
                       .age_max = absl::Hours(1),
                       .age_begins_anew = true},
                      time_};
};

TEST_F(PackageTableTest, KeepsAPinnedPackage) {
  table_.Pin("h");
  table_.Pin("h");
  EXPECT_FALSE(table_.Unpin("h", time_.Wall()));
  time_.AdvanceBy(absl::Hours(100));
  EXPECT_THAT(table_.Trim({}), IsEmpty());
  EXPECT_EQ(table_.PinsOf("h"), 1);
}

TEST_F(PackageTableTest, KnowsWhatIsLost) {
  EXPECT_TRUE(table_.IsWhole("h"));
  EXPECT_FALSE(table_.IsWhole("other"));
  EXPECT_TRUE(table_.SetLost("h", true));
  EXPECT_FALSE(table_.SetLost("h", true)) << "it was known";
  EXPECT_FALSE(table_.IsWhole("h"));
  EXPECT_NE(table_.Find("h"), nullptr);
  EXPECT_TRUE(table_.SetLost("h", false));
  EXPECT_TRUE(table_.IsWhole("h"));
}

TEST_F(PackageTableTest, ForgetsAPackageAnHourAfterItsLastPin) {
  table_.Pin("h");
  time_.AdvanceBy(absl::Hours(2));
  EXPECT_TRUE(table_.Unpin("h", time_.Wall()));
  EXPECT_EQ(table_.Find("h")->unpinned_at_us(),
            absl::ToUnixMicros(time_.Wall()));
  time_.AdvanceBy(absl::Minutes(59));
  EXPECT_THAT(table_.Trim({}), IsEmpty());
  time_.AdvanceBy(absl::Minutes(1));
  EXPECT_THAT(table_.Trim({"h"}), IsEmpty());  // being uploaded again
  time_.AdvanceBy(absl::Hours(1));
  EXPECT_THAT(table_.Trim({}), ElementsAre("h"));
  EXPECT_EQ(table_.Find("h"), nullptr);
}

// HI-1.
TEST_F(PackageTableTest, ForgetsTheOldestBeyondItsCountAndBytes) {
  table_.Pin("h");
  for (const char* hash : {"1", "2", "3", "4", "5"}) {
    PackageRecord record;
    record.set_hash(hash);
    record.set_size_bytes(100);
    table_.Add(record);
  }
  table_.Touch("1");
  EXPECT_THAT(table_.Trim({}), ElementsAre("2", "3"));
  PackageRecord large;
  large.set_hash("6");
  large.set_size_bytes(900);
  table_.Add(large);
  EXPECT_THAT(table_.Trim({}), ElementsAre("4", "5"));
  EXPECT_EQ(table_.Level().bytes, 1'000);
  EXPECT_NE(table_.Find("h"), nullptr);
}

}  // namespace
}  // namespace cohort::head
