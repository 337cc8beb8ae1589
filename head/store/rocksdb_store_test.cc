#include "head/store/rocksdb_store.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rocksdb/db.h"
#include "rocksdb/options.h"

#include "cohort/v1/storage.pb.h"
#include "common/hash.h"
#include "common/random.h"
#include "common/status_util.h"
#include "common/testing/seed.h"
#include "common/testing/status_matchers.h"
#include "head/store/records_codec.h"
#include "head/store/testing/rocksdb_store_fixture.h"

namespace cohort::head {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST_F(RocksdbStoreTest, RowsSurviveInKeyOrder) {
  COHORT_ASSERT_OK(
      MustOpen()->Append(0, {{Table::kJobs, "b", "2"},
                             {Table::kJobs, "a", "1"},
                             {Table::kNodes, "n", std::string("\0x", 2)}}));
  const auto open = [this] {
    return *RocksdbStore::Open({.path = path(), .check_rows = false});
  };
  COHORT_ASSERT_OK(open()->Append(
      0, {{Table::kJobs, "b", std::nullopt}, {Table::kJobs, "c", "3"}}));

  auto store = open();
  EXPECT_THAT(store->LoadAll(Table::kJobs),
              IsOkAndHolds(ElementsAre(Pair("a", "1"), Pair("c", "3"))));
  EXPECT_THAT(store->LoadAll(Table::kNodes),
              IsOkAndHolds(ElementsAre(Pair("n", std::string("\0x", 2)))));
  EXPECT_THAT(store->LoadAll(Table::kAttempts), IsOkAndHolds(IsEmpty()));
}

TEST_F(RocksdbStoreTest, TheLaterWriteOfARowInABatchWins) {
  auto store = MustOpen();
  COHORT_ASSERT_OK(store->Append(0, {{Table::kJobs, "a", "1"},
                                     {Table::kJobs, "a", std::nullopt},
                                     {Table::kJobs, "a", "2"}}));
  EXPECT_THAT(store->LoadAll(Table::kJobs),
              IsOkAndHolds(ElementsAre(Pair("a", "2"))));
}

// Logs that are rolled while tables still need them, and tables that are
// merged, are nothing to refuse.
TEST_F(RocksdbStoreTest, EachLifeTakesWhatTheOneBeforeLeft) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(absl::StrCat("replay: COHORT_SEED=", seed));
  SeededRandom random(seed);
  std::map<std::string, std::string> rows;
  size_t most_logs = 0;
  for (int life = 0; life < 5; ++life) {
    auto store = RocksdbStore::Open({.path = path(), .check_rows = false});
    COHORT_ASSERT_OK(store);
    for (const Table table : {Table::kJobs, Table::kEvents}) {
      const auto loaded = (*store)->LoadAll(table);
      COHORT_ASSERT_OK(loaded);
      for (const auto& [key, value] : *loaded) {
        ASSERT_EQ(rows.at(absl::StrCat(TableName(table), key)), value);
      }
    }
    const uint64_t writes = 12 + random.Below(20);
    for (uint64_t n = 0; n < writes; ++n) {
      // One table is filled slowly, so that it keeps old logs.
      const Table table =
          n == 0 || random.Below(8) == 0 ? Table::kEvents : Table::kJobs;
      const std::string key = absl::StrCat(random.Below(20));
      const size_t size = table == Table::kEvents ? 100 : 1'500'000;
      const std::string value(random.Below(size),
                              static_cast<char>('a' + n % 26));
      COHORT_ASSERT_OK((*store)->Append(0, {{table, key, value}}));
      rows[absl::StrCat(TableName(table), key)] = value;
    }
    most_logs = std::max(most_logs, Files(".log").size());
  }
  EXPECT_GT(most_logs, 1u) << "none was kept";
}

TEST_F(RocksdbStoreTest, OnlyTheStoredTermMayWrite) {
  COHORT_ASSERT_OK(MustOpen()->Append(0, Term(1)));
  {
    auto store = MustOpen();
    EXPECT_THAT(store->Append(0, Term(1)),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("its term is 1, this head's is 0")));
  }
  auto store = MustOpen();
  COHORT_EXPECT_OK(store->Append(1, Term(2)));
  COHORT_EXPECT_OK(store->Append(2, {Event(1)}));
  EXPECT_THAT(store->Append(1, {Event(2)}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(RocksdbStoreTest, ASecondOpenIsRefused) {
  auto store = MustOpen();
  const auto second = Open();
  EXPECT_THAT(second,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(path()), HasSubstr("another process"))));
  EXPECT_EQ(GetReason(second.status()), "store_locked");
}

TEST_F(RocksdbStoreTest, ANewerSchemaIsRefusedWithPathAndFix) {
  storage::v1::ClusterRow row;
  row.set_schema_version(kSchemaVersion + 1);
  std::string value = row.SerializeAsString();
  uint32_t crc = Crc32c(value, Crc32c(RowKey()));
  for (int i = 0; i < 4; ++i, crc >>= 8) {
    value.insert(value.begin(), static_cast<char>(crc & 0xff));
  }
  COHORT_ASSERT_OK(MustOpen()->Append(0, {{Table::kCluster, RowKey(), value}}));

  const auto store = Open();
  EXPECT_THAT(store,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(path()), HasSubstr("from the future"),
                             HasSubstr("newer cohort"))));
  EXPECT_EQ(GetReason(store.status()), "store_from_the_future");
}

TEST_F(RocksdbStoreTest, AnUnknownTableIsFromTheFuture) {
  MustOpen().reset();
  {
    rocksdb::Options options;
    std::vector<std::string> names;
    ASSERT_TRUE(rocksdb::DB::ListColumnFamilies(options, path(), &names).ok());
    std::vector<rocksdb::ColumnFamilyDescriptor> families;
    for (const std::string& name : names) families.emplace_back(name, options);
    std::vector<rocksdb::ColumnFamilyHandle*> handles;
    rocksdb::DB* raw = nullptr;
    ASSERT_TRUE(
        rocksdb::DB::Open(options, path(), families, &handles, &raw).ok());
    const std::unique_ptr<rocksdb::DB> db(raw);
    rocksdb::ColumnFamilyHandle* added = nullptr;
    ASSERT_TRUE(db->CreateColumnFamily(options, "quotas", &added).ok());
    handles.push_back(added);
    for (auto* handle : handles) (void)db->DestroyColumnFamilyHandle(handle);
  }
  const auto store = Open();
  EXPECT_THAT(store, StatusIs(absl::StatusCode::kFailedPrecondition,
                              AllOf(HasSubstr(path()), HasSubstr("\"quotas\""),
                                    HasSubstr("from the future"))));
  EXPECT_EQ(GetReason(store.status()), "store_from_the_future");
}

TEST_F(RocksdbStoreTest, AnUnwritablePathIsAnError) {
  EXPECT_THAT(RocksdbStore::Open({.path = "/proc/nowhere/store"}),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("/proc/nowhere/store")));
}

}  // namespace
}  // namespace cohort::head
