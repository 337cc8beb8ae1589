#include "head/store/memory_store.h"

#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "common/testing/status_matchers.h"
#include "head/store/records.h"
#include "head/store/records_codec.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

Batch Term(uint64_t term) {
  ClusterRecord record = NewCluster();
  record.set_term(term);
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

TEST(MemoryStoreTest, APowerFailureTakesWhatWasNotSynced) {
  bool lost = false;
  bool kept = false;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SeededRandom random(seed);
    MemoryDisk disk;
    COHORT_EXPECT_OK(MemoryStore(disk).Append(
        0, {{Table::kJobs, "a", "1"}, {Table::kJobs, "b", "1"}}));
    disk.FailAfter(0, AppendFault::kUnsynced);
    EXPECT_FALSE(MemoryStore(disk)
                     .Append(0, {{Table::kJobs, "a", "2"},
                                 {Table::kJobs, "b", std::nullopt}})
                     .ok());
    // Processes see it, and it may not last.
    EXPECT_EQ(disk.Find(Table::kJobs, "a"), "2");
    EXPECT_EQ(disk.Find(Table::kJobs, "b"), std::nullopt);
    EXPECT_EQ(disk.FindSynced(Table::kJobs, "a"), "1");
    EXPECT_EQ(disk.FindSynced(Table::kJobs, "b"), "1");
    disk.PowerOff(random);
    EXPECT_EQ(disk.Find(Table::kJobs, "b").has_value(),
              disk.Find(Table::kJobs, "a") == "1")
        << "all of a batch or nothing";
    (disk.batches_lost() == 1 ? lost : kept) = true;
  }
  EXPECT_TRUE(lost && kept);
}

TEST(MemoryStoreTest, ASyncKeepsWhatCameBefore) {
  SeededRandom random(1);
  MemoryDisk disk;
  disk.FailAfter(0, AppendFault::kUnsynced);
  EXPECT_FALSE(MemoryStore(disk).Append(0, {{Table::kJobs, "a", "1"}}).ok());
  COHORT_EXPECT_OK(MemoryStore(disk).Append(0, {{Table::kJobs, "b", "1"}}));
  EXPECT_EQ(disk.FindSynced(Table::kJobs, "a"), "1");
  disk.PowerOff(random);
  EXPECT_EQ(disk.Find(Table::kJobs, "a"), "1");
}

TEST(MemoryStoreTest, AsksForTheFateOfEachAppend) {
  MemoryDisk disk;
  int asked = 0;
  disk.SetFate([&asked](const Batch& batch) -> std::optional<AppendFault> {
    EXPECT_EQ(batch.size(), 1u);
    if (++asked == 2) return AppendFault::kLanded;
    return std::nullopt;
  });
  COHORT_EXPECT_OK(MemoryStore(disk).Append(0, {{Table::kJobs, "a", "1"}}));
  EXPECT_FALSE(MemoryStore(disk).Append(0, {{Table::kJobs, "b", "1"}}).ok());
  EXPECT_EQ(disk.FindSynced(Table::kJobs, "b"), "1");
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
