#include "head/rocksdb_store.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
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
#include "common/testing/temp_dir.h"
#include "head/records_codec.h"

namespace cohort::head {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

Batch Term(uint64_t term) {
  ClusterRecord record;
  record.term = term;
  return {ToWrite(record)};
}

Write Event(uint64_t number, size_t size = 20) {
  EventRecord event;
  event.number = number;
  event.text = std::string(size, 'x');
  return ToWrite(event);
}

std::string ReadFile(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void WriteFile(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

class RocksdbStoreTest : public ::testing::Test {
 protected:
  std::string path() const { return dir_.File("store"); }

  absl::StatusOr<std::unique_ptr<RocksdbStore>> Open() const {
    return RocksdbStore::Open({.path = path()});
  }

  std::unique_ptr<RocksdbStore> MustOpen() const {
    auto store = Open();
    EXPECT_THAT(store.status(), IsOk());
    if (!store.ok()) std::abort();  // nothing to go on with
    return *std::move(store);
  }

  // Files of the store whose name contains `part`.
  std::vector<fs::path> Files(const std::string& part) const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(path())) {
      if (absl::StrContains(entry.path().filename().string(), part)) {
        files.push_back(entry.path());
      }
    }
    return files;
  }

  // As if its process had been killed: nobody said where the logs end.
  void ForgetTheEnd() const {
    auto* const env = rocksdb::Env::Default();
    RocksdbMark mark;
    ASSERT_TRUE(ReadRocksdbMark(env, path(), mark).ok());
    mark.logs.clear();
    ASSERT_TRUE(WriteRocksdbMark(env, path(), mark).ok());
  }

  // The whole store to and from `copy`.
  void Save() const {
    fs::copy(path(), dir_.File("copy"), fs::copy_options::recursive);
    fs::copy(RocksdbMarkPath(path()), dir_.File("copy.mark"));
  }
  void Restore() const {
    fs::remove_all(path());
    fs::copy(dir_.File("copy"), path(), fs::copy_options::recursive);
    fs::copy(dir_.File("copy.mark"), RocksdbMarkPath(path()),
             fs::copy_options::overwrite_existing);
  }

  // Opens and reads everything: OK only when nothing is wrong anywhere.
  absl::Status ReadEverything() const {
    auto store = Open();
    if (!store.ok()) return store.status();
    for (const Table table : kAllTables) {
      if (auto rows = (*store)->LoadAll(table); !rows.ok()) {
        return rows.status();
      }
    }
    if (auto events = LoadRecords<EventRecord>(**store); !events.ok()) {
      return events.status();
    }
    return LoadRecords<ClusterRecord>(**store).status();
  }

  // Makes a store with rows in table files as well as in the log.
  void FillWithTableFiles() const {
    auto store = MustOpen();
    COHORT_ASSERT_OK(store->Append(0, Term(1)));
    for (uint64_t n = 1; n <= 200; ++n) {
      COHORT_ASSERT_OK(store->Append(1, {Event(n, 100)}));
    }
    store.reset();
    // Opening writes what the log held to table files.
    COHORT_ASSERT_OK(MustOpen()->Append(1, {Event(201, 100)}));
    ASSERT_FALSE(Files(".sst").empty());
    ASSERT_FALSE(Files(".log").empty());
  }

  TempDir dir_;
};

TEST_F(RocksdbStoreTest, RowsSurviveInKeyOrder) {
  COHORT_ASSERT_OK(
      MustOpen()->Append(0, {{Table::kJobs, "b", "2"},
                             {Table::kJobs, "a", "1"},
                             {Table::kNodes, "n", std::string("\0x", 2)}}));
  COHORT_ASSERT_OK(MustOpen()->Append(
      0, {{Table::kJobs, "b", std::nullopt}, {Table::kJobs, "c", "3"}}));

  auto store = MustOpen();
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
  uint32_t crc = Crc32c(value, Crc32c(ClusterKey()));
  for (int i = 0; i < 4; ++i, crc >>= 8) {
    value.insert(value.begin(), static_cast<char>(crc & 0xff));
  }
  COHORT_ASSERT_OK(
      MustOpen()->Append(0, {{Table::kCluster, ClusterKey(), value}}));

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

// --- damage (RS-2) -----------------------------------------------------------

TEST_F(RocksdbStoreTest, AMissingFileIsDataLossNotAnEmptyCluster) {
  FillWithTableFiles();
  Save();
  for (const std::string kind : {"CURRENT", "MANIFEST-", ".sst", ".log"}) {
    for (const fs::path& file : Files(kind)) fs::remove(file);
    const absl::Status status = ReadEverything();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss,
                                 AllOf(HasSubstr(path()), HasSubstr("backup"))))
        << "without " << kind;
    Restore();
  }
  COHORT_EXPECT_OK(ReadEverything());
}

TEST_F(RocksdbStoreTest, ALogCutShortAfterACleanEndIsDataLoss) {
  {
    auto store = MustOpen();
    COHORT_ASSERT_OK(store->Append(0, Term(1)));
    for (uint64_t n = 1; n <= 3; ++n) {
      COHORT_ASSERT_OK(store->Append(1, {Event(n)}));
    }
  }
  Save();
  const uint64_t size = fs::file_size(Files(".log")[0]);
  for (const uint64_t left : {uint64_t{0}, size / 2, size - 1}) {
    fs::resize_file(Files(".log")[0], left);
    EXPECT_THAT(ReadEverything(),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("cut short")));
    Restore();
  }
  COHORT_EXPECT_OK(ReadEverything());
}

// Of a process that was killed, at least its term is known.
TEST_F(RocksdbStoreTest, AStoreThatLostItsTermIsDataLoss) {
  COHORT_ASSERT_OK(MustOpen()->Append(0, Term(1)));
  ForgetTheEnd();
  Save();
  fs::resize_file(Files(".log")[0], 0);
  // Again and again: who starts it anew does not get an empty cluster.
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(ReadEverything(), StatusIs(absl::StatusCode::kDataLoss,
                                           HasSubstr("it has been 1")));
  }
  Restore();
  fs::remove_all(path());
  EXPECT_THAT(ReadEverything(),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr(path()), HasSubstr("any more"))));
  Restore();
  COHORT_EXPECT_OK(ReadEverything());
}

// Flips one bit somewhere in each kind of file, many times.  Whatever is read
// afterwards is either refused or whole.
TEST_F(RocksdbStoreTest, AFlippedBitIsDataLossOrHarmless) {
  const uint64_t seed = TestSeed();
  SeededRandom random(seed);
  FillWithTableFiles();
  ForgetTheEnd();
  Save();
  const auto all = [this] {
    auto store = Open();
    std::vector<EventRecord> rows;
    if (store.ok()) {
      if (auto events = LoadRecords<EventRecord>(**store); events.ok()) {
        rows = *std::move(events);
      }
    }
    return rows;
  };
  const size_t rows = all().size();
  ASSERT_EQ(rows, 201u);
  int refused = 0;
  for (int round = 0; round < 60; ++round) {
    Restore();
    const std::string kinds[] = {"CURRENT", "MANIFEST-", ".sst", ".log"};
    const std::string& kind = kinds[round % 4];
    const std::vector<fs::path> files = Files(kind);
    const fs::path& file = files[random.Below(files.size())];
    std::string bytes = ReadFile(file);
    if (bytes.empty()) continue;
    const size_t bit = random.Below(8 * bytes.size());
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    WriteFile(file, bytes);
    SCOPED_TRACE(absl::StrCat("seed ", seed, " round ", round, " ",
                              file.filename().string(), " bit ", bit));

    const absl::Status status = ReadEverything();
    if (status.ok()) {
      EXPECT_EQ(all().size(), rows) << "rows vanished silently";
      continue;
    }
    ++refused;
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss));
  }
  EXPECT_GT(refused, 20);
}

TEST_F(RocksdbStoreTest, ATornTailOfTheLogIsNoDamage) {
  {
    auto store = MustOpen();
    COHORT_ASSERT_OK(store->Append(0, {Event(1)}));
    COHORT_ASSERT_OK(store->Append(0, {Event(2)}));
  }
  ForgetTheEnd();
  const std::vector<fs::path> logs = Files(".log");
  ASSERT_EQ(logs.size(), 1u);
  fs::resize_file(logs[0], fs::file_size(logs[0]) - 5);

  const auto events = LoadRecords<EventRecord>(*MustOpen());
  COHORT_ASSERT_OK(events);
  ASSERT_EQ(events->size(), 1u) << "the torn batch is not there, the other is";
  EXPECT_EQ((*events)[0].number, 1u);
}

TEST_F(RocksdbStoreTest, AZeroedTailOfTheLogIsNoDamage) {
  {
    auto store = MustOpen();
    COHORT_ASSERT_OK(store->Append(0, {Event(1)}));
    COHORT_ASSERT_OK(store->Append(0, {Event(2, 500)}));
  }
  ForgetTheEnd();
  const std::vector<fs::path> logs = Files(".log");
  ASSERT_EQ(logs.size(), 1u);
  std::string bytes = ReadFile(logs[0]);
  bytes.replace(bytes.size() - 300, 300, 300, '\0');
  WriteFile(logs[0], bytes);

  for (int open = 0; open < 2; ++open) {
    const auto events = LoadRecords<EventRecord>(*MustOpen());
    COHORT_ASSERT_OK(events);
    ASSERT_EQ(events->size(), 1u);
    EXPECT_EQ((*events)[0].number, 1u);
  }
}

// RocksDB alone would drop this batch and all after it without a word.
TEST_F(RocksdbStoreTest, AFlippedLengthInTheLogIsDataLoss) {
  {
    auto store = MustOpen();
    for (uint64_t n = 1; n <= 3; ++n) {
      COHORT_ASSERT_OK(store->Append(0, {Event(n)}));
    }
  }
  const std::vector<fs::path> logs = Files(".log");
  ASSERT_EQ(logs.size(), 1u);
  std::string bytes = ReadFile(logs[0]);
  bytes[5] ^= 0x40;  // the high byte of the first record's length
  WriteFile(logs[0], bytes);

  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(".log")));
}

TEST_F(RocksdbStoreTest, ADamagedMiddleOfTheLogIsDataLoss) {
  {
    auto store = MustOpen();
    for (uint64_t n = 1; n <= 50; ++n) {
      COHORT_ASSERT_OK(store->Append(0, {Event(n)}));
    }
  }
  const std::vector<fs::path> logs = Files(".log");
  ASSERT_EQ(logs.size(), 1u);
  std::string bytes = ReadFile(logs[0]);
  bytes[bytes.size() / 2] ^= 1;
  WriteFile(logs[0], bytes);

  const auto store = Open();
  EXPECT_THAT(store, StatusIs(absl::StatusCode::kDataLoss,
                              AllOf(HasSubstr(path()), HasSubstr("backup"))));
  EXPECT_EQ(GetReason(store.status()), "store_damaged");
}

TEST_F(RocksdbStoreTest, ARowWithAWrongChecksumIsDataLoss) {
  {
    auto store = MustOpen();
    Write write = Event(1);
    write.value->back() ^= 1;  // below RocksDB's own checksums
    COHORT_ASSERT_OK(store->Append(0, {write}));
  }
  EXPECT_THAT(LoadRecords<EventRecord>(*MustOpen()),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("events")));
}

TEST_F(RocksdbStoreTest, AnUnwritablePathIsAnError) {
  EXPECT_THAT(RocksdbStore::Open({.path = "/proc/nowhere/store"}),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("/proc/nowhere/store")));
}

}  // namespace
}  // namespace cohort::head
