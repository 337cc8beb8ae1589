#include "head/store/migration.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "cohort/v1/storage.pb.h"
#include "common/hex_text.h"
#include "common/status_util.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "head/state/rows.h"
#include "head/store/memory_store.h"
#include "head/store/records_codec.h"
#include "head/store/rocksdb_store.h"

namespace cohort::head {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

TEST(MigrationTest, NothingIsWrittenWhereNothingIsToBeDone) {
  MemoryDisk disk;
  MemoryStore store(disk);
  COHORT_EXPECT_OK(MigrateStore(store));
  EXPECT_EQ(disk.appends(), 0);
  COHORT_ASSERT_OK(store.Append(0, {ToWrite(NewCluster())}));
  COHORT_EXPECT_OK(MigrateStore(store));
  EXPECT_EQ(disk.appends(), 1);
}

// ---- steps of the tests' own: each puts one letter behind a text ----

namespace pb = ::cohort::storage::v1;

absl::StatusOr<std::optional<std::string>> Mark(Table table,
                                                absl::string_view message,
                                                const char* letter) {
  if (table == Table::kEvents) {
    EventRecord row;
    row.ParseFromArray(message.data(), static_cast<int>(message.size()));
    row.set_text(row.text() + letter);
    return row.SerializeAsString();
  }
  if (table == Table::kPackages) {
    pb::PackageRow row;
    row.ParseFromArray(message.data(), static_cast<int>(message.size()));
    row.set_size_bytes(row.size_bytes() + 1);
    return row.SerializeAsString();
  }
  return std::nullopt;
}

// From this program's schema on.
constexpr uint32_t kFirst = kSchemaVersion;
constexpr uint32_t kLast = kFirst + 2;
constexpr MigrationStep kTwoSteps[] = {
    {.from = kFirst,
     .rewrite =
         [](Table table, absl::string_view message) {
           return Mark(table, message, "a");
         }},
    {.from = kFirst + 1,
     .rewrite =
         [](Table table, absl::string_view message) {
           return Mark(table, message, "b");
         }},
};

void Fill(MemoryDisk& disk, uint32_t schema) {
  pb::ClusterRow cluster;
  cluster.set_schema_version(schema);
  cluster.set_term(5);
  Batch batch = {{Table::kCluster, RowKey(),
                  SealRow(RowKey(), cluster.SerializeAsString())}};
  for (uint64_t n = 1; n <= 20; ++n) {
    EventRecord event;
    event.set_number(n);
    event.set_namespace_("default");
    batch.push_back(ToWrite(event));
    PackageRecord package;
    package.set_hash(absl::StrCat("h", n));
    batch.push_back(ToWrite(package));
  }
  MemoryStore store(disk);
  COHORT_ASSERT_OK(store.Append(0, batch));
}

void ExpectEachRowOnce(MemoryDisk& disk) {
  MemoryStore store(disk);
  std::vector<std::string> texts;
  const auto events = LoadRecords<EventRecord>(store);
  COHORT_ASSERT_OK(events);
  for (const EventRecord& event : *events) texts.push_back(event.text());
  EXPECT_EQ(texts.size(), 20u);
  EXPECT_THAT(texts, Each("ab"));
  const auto packages = LoadRecords<PackageRecord>(store);
  COHORT_ASSERT_OK(packages);
  for (const PackageRecord& package : *packages) {
    EXPECT_EQ(package.size_bytes(), 2);
  }
}

// MG-1: killed at any append, which landed or did not.
TEST(MigrationTest, EachRowIsRewrittenOnceWhereverItIsKilled) {
  int kills = 0;
  for (const AppendFault fault :
       {AppendFault::kLanded, AppendFault::kNotLanded}) {
    for (int successes = 0;; ++successes) {
      MemoryDisk disk;
      Fill(disk, kFirst);
      disk.FailAfter(successes, fault);
      absl::Status done = absl::UnknownError("");
      for (int start = 0; start < 2 && !done.ok(); ++start) {
        MemoryStore store(disk);
        done = MigrateStore(store, kTwoSteps, /*batch_bytes=*/64);
      }
      COHORT_ASSERT_OK(done);
      ExpectEachRowOnce(disk);
      if (disk.faults_fired() == 0) break;
      ++kills;
    }
  }
  EXPECT_GT(kills, 40);
}

// MG-2.
TEST(MigrationTest, AnOlderProgramRefusesAHalfMigratedStore) {
  MemoryDisk disk;
  Fill(disk, kFirst + 1);
  disk.FailAfter(1, AppendFault::kNotLanded);
  MemoryStore store(disk);
  EXPECT_FALSE(MigrateStore(store, std::span(kTwoSteps).last(1), 64).ok());
  MemoryStore again(disk);
  const auto rows = again.LoadAll(Table::kCluster);
  EXPECT_EQ(ReadClusterStamp(rows->front().second)->schema_version, kLast);
  EXPECT_THAT(MigrateStore(again, std::span(kTwoSteps).first(1)),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(MigrationTest, ASchemaOutOfReachNamesBothAndTheFix) {
  MemoryDisk disk;
  Fill(disk, kSchemaVersion + 1);
  MemoryStore store(disk);
  const absl::Status refused = MigrateStore(store);
  EXPECT_THAT(refused,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(absl::StrCat(kSchemaVersion + 1)),
                             HasSubstr(absl::StrCat("to ", kSchemaVersion)))));
  EXPECT_EQ(GetReason(refused), "schema_out_of_reach");
}

TEST(MigrationTest, ADamagedRowStopsIt) {
  MemoryDisk disk;
  Fill(disk, kFirst);
  disk.Corrupt(Table::kEvents, RowKey(3), "junk");
  MemoryStore store(disk);
  EXPECT_THAT(MigrateStore(store, kTwoSteps),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("events")));
}

}  // namespace
}  // namespace cohort::head
