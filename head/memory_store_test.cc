#include "head/memory_store.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "head/records.h"
#include "head/records_codec.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

Batch Term(uint64_t term) {
  ClusterRecord record;
  record.term = term;
  return {ToWrite(record)};
}

TEST(MemoryStoreTest, RowsOutliveTheStore) {
  MemoryDisk disk;
  COHORT_ASSERT_OK(MemoryStore(disk).Append(
      0, {{Table::kJobs, "b", "2"}, {Table::kJobs, "a", "1"}}));
  COHORT_ASSERT_OK(
      MemoryStore(disk).Append(0, {{Table::kJobs, "b", std::nullopt}}));

  MemoryStore store(disk);
  EXPECT_THAT(store.LoadAll(Table::kJobs),
              IsOkAndHolds(ElementsAre(Pair("a", "1"))));
  EXPECT_THAT(store.LoadAll(Table::kNodes), IsOkAndHolds(IsEmpty()));
}

TEST(MemoryStoreTest, OnlyTheStoredTermMayWrite) {
  MemoryDisk disk;
  MemoryStore older(disk);
  MemoryStore newer(disk);
  COHORT_ASSERT_OK(older.Append(0, Term(1)));
  COHORT_ASSERT_OK(newer.Append(1, Term(2)));

  EXPECT_THAT(older.Append(1, {{Table::kJobs, "a", "1"}}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("its term is 2, this head's is 1")));
  EXPECT_EQ(disk.Find(Table::kJobs, "a"), std::nullopt);
}

TEST(MemoryStoreTest, FailsOnCueWithTheBatchLandedOrNot) {
  for (const AppendFault fault :
       {AppendFault::kLanded, AppendFault::kNotLanded}) {
    MemoryDisk disk;
    disk.FailAfter(1, fault);
    MemoryStore store(disk);
    COHORT_EXPECT_OK(store.Append(0, {{Table::kJobs, "a", "1"}}));
    EXPECT_THAT(store.Append(0, {{Table::kJobs, "b", "2"}}),
                StatusIs(absl::StatusCode::kUnavailable));
    EXPECT_EQ(disk.Find(Table::kJobs, "b").has_value(),
              fault == AppendFault::kLanded);
    EXPECT_EQ(disk.faults_fired(), 1);
    COHORT_EXPECT_OK(MemoryStore(disk).Append(0, {{Table::kJobs, "c", "3"}}));
  }
}

TEST(MemoryStoreTest, RefusesUntilHealed) {
  MemoryDisk disk;
  disk.Refuse();
  EXPECT_THAT(MemoryStore(disk).Append(0, {{Table::kJobs, "a", "1"}}),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(MemoryStore(disk).Append(0, {{Table::kJobs, "a", "1"}}),
              StatusIs(absl::StatusCode::kUnavailable));
  disk.Heal();
  COHORT_EXPECT_OK(MemoryStore(disk).Append(0, {{Table::kJobs, "a", "1"}}));
}

TEST(MemoryStoreDeathTest, IsNotUsedAgainAfterAFailure) {
  MemoryDisk disk;
  disk.FailAfter(0, AppendFault::kNotLanded);
  MemoryStore store(disk);
  EXPECT_FALSE(store.Append(0, {{Table::kJobs, "a", "1"}}).ok());
  EXPECT_DEATH((void)store.Append(0, {}), "CM-3");
}

}  // namespace
}  // namespace cohort::head
