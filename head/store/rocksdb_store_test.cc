#include "head/store/rocksdb_store.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
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
#include "head/store/records_codec.h"

namespace cohort::head {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

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

  // As after a power cut, at worst: the mark is far behind.
  void ForgetTheEnd() const {
    auto* const env = rocksdb::Env::Default();
    RocksdbMark mark;
    ASSERT_TRUE(ReadRocksdbMark(env, path(), mark).ok());
    ASSERT_TRUE(
        WriteRocksdbMark(env, path(), RocksdbMark{.term = mark.term}).ok());
  }

  // What kill -9 would leave now of the store at `live`, as path().
  void CopyKilled(const std::string& live) const {
    fs::remove_all(path());
    fs::copy(live, path(), fs::copy_options::recursive);
    fs::copy(RocksdbMarkPath(live), RocksdbMarkPath(path()),
             fs::copy_options::overwrite_existing);
  }

  // The bytes of the store and what is beside it, by name.
  std::map<std::string, std::string> Bytes() const {
    std::map<std::string, std::string> bytes;
    for (const auto& entry : fs::directory_iterator(path())) {
      bytes[entry.path().filename().string()] = ReadFile(entry.path());
    }
    for (const char* beside : {".mark", ".mark.new"}) {
      if (fs::exists(path() + beside)) {
        bytes[beside] = ReadFile(path() + beside);
      }
    }
    return bytes;
  }
  fs::path PathOf(const std::string& name) const {
    return name.front() == '.' ? fs::path(path() + name)
                               : fs::path(path()) / name;
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

// The ways in which a file goes bad, by name; nothing: it is gone.
std::map<std::string, std::optional<std::string>> Damages(
    const std::string& bytes) {
  std::map<std::string, std::optional<std::string>> bad;
  bad["missing"] = std::nullopt;
  if (bytes.empty()) return bad;
  bad["empty"] = "";
  bad["half"] = bytes.substr(0, bytes.size() / 2);
  bad["a few bytes less"] = bytes.substr(0, bytes.size() - 3);
  for (const auto& [where, at] :
       std::map<std::string, size_t>{{"first", 0},
                                     {"middle", bytes.size() / 2},
                                     {"last", bytes.size() - 1}}) {
    std::string flipped = bytes;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x10);
    bad[where + " byte flipped"] = std::move(flipped);
  }
  return bad;
}

// RS-2 and RS-4, file by file, after kill -9.
TEST_F(RocksdbStoreTest, ADamagedFileIsRefusedAndNothingChanged) {
  {
    const std::string live = dir_.File("live");
    auto store = *RocksdbStore::Open({.path = live});
    COHORT_ASSERT_OK(store->Append(0, Term(1)));
    COHORT_ASSERT_OK(store->Append(1, {Event(1, 3000)}));
    store.reset();
    store = *RocksdbStore::Open({.path = live});  // makes tables of the log
    COHORT_ASSERT_OK(store->Append(1, {Event(2, 3000)}));
    COHORT_ASSERT_OK(store->Append(1, {Event(3, 30)}));
    CopyKilled(live);
    Save();
  }
  const std::map<std::string, std::string> whole = Bytes();
  int refused = 0;
  for (const auto& [name, bytes] : whole) {
    // Notes for people, many of them.
    const bool is_note =
        absl::StartsWith(name, "LOG") || absl::StartsWith(name, "OPTIONS");
    for (const auto& [how, bad] : Damages(bytes)) {
      if (is_note && how != "half") continue;
      SCOPED_TRACE(absl::StrCat(name, ": ", how));
      Restore();
      fs::remove(PathOf(name));
      if (bad.has_value()) WriteFile(PathOf(name), *bad);
      const auto before = Bytes();
      const absl::Status status = ReadEverything();
      // Without a mark less is known; the others are notes for people.
      const bool matters =
          name == ".mark" ? how != "missing" && !absl::StrContains(how, "flip")
                          : name == "CURRENT" || absl::EndsWith(name, ".sst") ||
                                absl::EndsWith(name, ".log") ||
                                absl::StartsWith(name, "MANIFEST");
      EXPECT_EQ(!status.ok(), matters);
      if (status.ok()) {
        const auto events = LoadRecords<EventRecord>(*MustOpen());
        COHORT_ASSERT_OK(events);
        EXPECT_EQ(events->size(), 3u);
        continue;
      }
      ++refused;
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss,
                                   AllOf(HasSubstr(path()),
                                         HasSubstr("cohort head restore"))));
      EXPECT_EQ(Bytes(), before);
      // So what was whole, put back, is enough.
      if (how != "half") continue;
      WriteFile(PathOf(name), bytes);
      COHORT_EXPECT_OK(ReadEverything());
    }
  }
  EXPECT_GT(refused, 20);
}

// The end of each record is where a log that is whole could have ended.
TEST_F(RocksdbStoreTest, ALogCutBetweenRecordsAfterAKillIsDataLoss) {
  const std::string live = dir_.File("live");
  auto store = *RocksdbStore::Open({.path = live});
  COHORT_ASSERT_OK(store->Append(0, Term(1)));
  CopyKilled(live);
  ASSERT_EQ(Files(".log").size(), 1u);
  const std::string log = Files(".log")[0].filename().string();
  std::vector<uint64_t> ends;
  for (uint64_t n = 1; n <= 5; ++n) {
    ends.push_back(fs::file_size(fs::path(live) / log));
    COHORT_ASSERT_OK(store->Append(1, {Event(n)}));
  }
  for (const uint64_t end : ends) {
    CopyKilled(live);
    fs::resize_file(PathOf(log), end);
    for (const auto access : {StoreAccess::kReadWrite, StoreAccess::kInspect}) {
      EXPECT_THAT(
          RocksdbStore::Open({.path = path(), .access = access}).status(),
          StatusIs(absl::StatusCode::kDataLoss,
                   AllOf(HasSubstr(log), HasSubstr("cut short"))));
    }
  }
  CopyKilled(live);
  COHORT_EXPECT_OK(ReadEverything());
}

// The manifest names the tables; when it loses one, its rows are lost, though
// the log after them is whole.
TEST_F(RocksdbStoreTest, AManifestCutBetweenRecordsAfterAKillIsDataLoss) {
  const std::string live = dir_.File("live");
  auto store = *RocksdbStore::Open({.path = live});
  COHORT_ASSERT_OK(store->Append(0, Term(1)));
  CopyKilled(live);
  std::string manifest = ReadFile(path() + "/CURRENT");
  manifest.pop_back();
  const fs::path file = fs::path(live) / manifest;
  const uint64_t before = fs::file_size(file);
  uint64_t number = 0;
  // Tables are written in the background.
  while (fs::file_size(file) == before) {
    COHORT_ASSERT_OK(store->Append(1, {Event(++number, 100'000)}));
  }
  COHORT_ASSERT_OK(store->Append(1, {Event(++number)}));
  CopyKilled(live);
  fs::resize_file(PathOf(manifest), before);
  EXPECT_THAT(ReadEverything(),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr(manifest), HasSubstr("cut short"))));
}

TEST_F(RocksdbStoreTest, AnOldCurrentIsDataLoss) {
  COHORT_ASSERT_OK(MustOpen()->Append(0, Term(1)));
  const std::string current = ReadFile(path() + "/CURRENT");
  const std::string manifest = current.substr(0, current.size() - 1);
  const std::string bytes = ReadFile(PathOf(manifest));
  COHORT_ASSERT_OK(MustOpen()->Append(1, {Event(1)}));
  WriteFile(PathOf("CURRENT"), current);
  WriteFile(PathOf(manifest), bytes);
  EXPECT_THAT(ReadEverything(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("it has named")));
}

TEST_F(RocksdbStoreTest, AStoreWithoutAMarkOrWithAnOldOneGetsOne) {
  COHORT_ASSERT_OK(MustOpen()->Append(0, Term(7)));
  RocksdbMark whole;
  auto* const env = rocksdb::Env::Default();
  ASSERT_TRUE(ReadRocksdbMark(env, path(), whole).ok());
  EXPECT_EQ(whole.term, 7u);
  EXPECT_GT(whole.sequence, 0u);
  EXPECT_GT(whole.manifest_bytes, 0u);
  for (const std::string old :
       {"", "cohort store mark 1\nterm 7\nlog 000004.log 0\nend\n"}) {
    fs::remove(PathOf(".mark"));
    if (!old.empty()) WriteFile(PathOf(".mark"), old);
    COHORT_EXPECT_OK(ReadEverything());
    RocksdbMark mark;
    ASSERT_TRUE(ReadRocksdbMark(env, path(), mark).ok());
    EXPECT_EQ(mark.term, 7u);
    EXPECT_EQ(mark.sequence, whole.sequence);
    EXPECT_GT(mark.manifest_bytes, 0u);
  }
  WriteFile(PathOf(".mark"), "cohort store mark 1\nterm 8\nend\n");
  EXPECT_THAT(ReadEverything(), StatusIs(absl::StatusCode::kDataLoss,
                                         HasSubstr("it has been 8")));
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

  // To look at it does not need the zeros cut off, nor cut them.
  const auto before = Bytes();
  const auto looked =
      RocksdbStore::Open({.path = path(), .access = StoreAccess::kInspect});
  COHORT_ASSERT_OK(looked);
  EXPECT_THAT((*looked)->LoadAll(Table::kEvents), IsOkAndHolds(SizeIs(1)));
  EXPECT_EQ(Bytes(), before);
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
  const auto before = Bytes();
  EXPECT_THAT(Open().status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("events")));
  EXPECT_EQ(Bytes(), before);
  const auto looked =
      RocksdbStore::Open({.path = path(), .access = StoreAccess::kInspect});
  COHORT_ASSERT_OK(looked);
  EXPECT_THAT(LoadRecords<EventRecord>(**looked),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("events")));
}

TEST_F(RocksdbStoreTest, AnUnwritablePathIsAnError) {
  EXPECT_THAT(RocksdbStore::Open({.path = "/proc/nowhere/store"}),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("/proc/nowhere/store")));
}

}  // namespace
}  // namespace cohort::head
