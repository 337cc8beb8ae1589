// What a store makes of damage to its files (RS-2, RS-4).

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rocksdb/env.h"

#include "common/random.h"
#include "common/status_util.h"
#include "common/testing/seed.h"
#include "common/testing/status_matchers.h"
#include "head/store/records_codec.h"
#include "head/store/rocksdb_store.h"
#include "head/store/testing/rocksdb_store_fixture.h"

namespace cohort::head {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

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
  // Again and again: who starts it again does not get an empty cluster.
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
    // Of a log that ends differently only the mark can tell.
    if (kind != ".log") ForgetTheEnd();
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

// RS-2 and RS-4 where each file is whole, and not this store's, or not there
// once: by its own bytes nothing is wrong with it.
class WholeFilesTest : public RocksdbStoreTest {
 protected:
  // Three lives under three manifests, the last killed; with tables and a log.
  // Remembers what the second one left.
  void SetUp() override {
    const std::string live = dir_.File("live");
    auto store = *RocksdbStore::Open({.path = live});
    COHORT_ASSERT_OK(store->Append(0, Term(1)));
    COHORT_ASSERT_OK(store->Append(1, {Event(++events_, 40'000)}));
    store.reset();
    store = *RocksdbStore::Open({.path = live});
    COHORT_ASSERT_OK(store->Append(1, {Event(++events_, 3000)}));
    COHORT_ASSERT_OK(store->Append(1, {Event(++events_, 3000)}));
    CopyKilled(live);
    old_ = Bytes();
    store.reset();
    store = *RocksdbStore::Open({.path = live});
    for (int i = 0; i < 4; ++i) {
      COHORT_ASSERT_OK(store->Append(1, {Event(++events_, 30)}));
    }
    CopyKilled(live);
    Save();
    store.reset();
    ASSERT_EQ(Files(".log").size(), 1u);
    ASSERT_GE(Files(".sst").size(), 2u);
    log_ = Files(".log")[0];
  }

  // Of the store as the second life left it, the newest of its kind.
  std::string Old(const std::string& part) const {
    std::string bytes;
    for (const auto& [name, is] : old_) {
      if (absl::StrContains(name, part)) bytes = is;
    }
    return bytes;
  }

  // It names `file`, and is left as it is.
  void ExpectRefused(const fs::path& file,
                     const std::vector<StoreAccess>& accesses = {
                         StoreAccess::kInspect,
                         StoreAccess::kReadWrite}) const {
    const auto before = Bytes();
    for (const StoreAccess access : accesses) {
      const absl::Status status =
          RocksdbStore::Open({.path = path(), .access = access}).status();
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss,
                                   AllOf(HasSubstr(file.string()),
                                         HasSubstr("cohort head restore"))));
      EXPECT_EQ(GetReason(status), "store_damaged");
    }
    EXPECT_EQ(Bytes(), before);
  }
  void ExpectWhole() const {
    const auto events = LoadRecords<EventRecord>(*MustOpen());
    COHORT_ASSERT_OK(events);
    EXPECT_EQ(events->size(), events_);
  }

  uint64_t events_ = 0;
  fs::path log_;
  std::map<std::string, std::string> old_;
};

// RocksDB makes an assertion of the same change twice, and ends the process.
TEST_F(WholeFilesTest, ALogWhoseBytesStandTwiceIsRefused) {
  const std::string bytes = ReadFile(log_);
  WriteFile(log_, bytes + bytes);
  ExpectRefused(log_);
  ForgetTheEnd();
  ExpectRefused(log_);
}

TEST_F(WholeFilesTest, ALogBesideItsOwnCopyIsRefused) {
  const int number = std::stoi(log_.filename().string());
  const fs::path copy = PathOf(absl::StrFormat("%06d.log", number + 9));
  fs::copy(log_, copy);
  ExpectRefused(copy);
  ForgetTheEnd();
  ExpectRefused(copy);
  fs::remove(copy);
  const fs::path before = PathOf(absl::StrFormat("%06d.log", number - 1));
  fs::copy(log_, before);
  ExpectRefused(log_);
}

TEST_F(WholeFilesTest, AnOlderLogUnderTheNameOfALaterOneIsRefused) {
  ASSERT_NE(Old(".log"), "");
  WriteFile(log_, Old(".log"));
  ExpectRefused(log_);
}

TEST_F(WholeFilesTest, AMissingOrEmptyLogIsNamed) {
  fs::remove(log_);
  ExpectRefused(PathOf("*.log"));
  WriteFile(log_, "");
  ExpectRefused(log_);
}

TEST_F(WholeFilesTest, RecordsOfALogInAnotherOrderAreRefused) {
  std::string bytes = ReadFile(log_);
  std::vector<std::string> records;
  while (!bytes.empty()) {
    // Checksum, length, type, and the payload.
    ASSERT_GE(bytes.size(), 7u);
    const size_t length = static_cast<uint8_t>(bytes[4]) +
                          256 * static_cast<uint8_t>(bytes[5]) + 7;
    records.push_back(bytes.substr(0, length));
    bytes.erase(0, records.back().size());
  }
  ASSERT_GE(records.size(), 4u);
  std::swap(records[records.size() - 2], records[records.size() - 3]);
  WriteFile(log_, absl::StrJoin(records, ""));
  ExpectRefused(log_);
  ForgetTheEnd();
  ExpectRefused(log_);
  std::swap(records[records.size() - 2], records[records.size() - 3]);
  records.erase(records.end() - 2);
  WriteFile(log_, absl::StrJoin(records, ""));
  ExpectRefused(log_);
}

TEST_F(WholeFilesTest, ATableUnderTheNameOfAnotherIsRefused) {
  const std::vector<fs::path> tables = Files(".sst");
  for (const fs::path& from : tables) {
    for (const fs::path& to : tables) {
      if (from == to) continue;
      Restore();
      WriteFile(to, ReadFile(from));
      ExpectRefused(to);
      ForgetTheEnd();
      ExpectRefused(to);
    }
  }
}

TEST_F(WholeFilesTest, AMissingEmptyCutOrFlippedTableIsNamed) {
  for (const fs::path& table : Files(".sst")) {
    for (const auto& [how, bad] : Damages(ReadFile(table))) {
      SCOPED_TRACE(how);
      Restore();
      fs::remove(table);
      if (bad.has_value()) WriteFile(table, *bad);
      // To look at it the rows are read, not all blocks.
      ExpectRefused(table, {StoreAccess::kReadWrite});
    }
  }
}

TEST_F(WholeFilesTest, AnOlderManifestIsRefused) {
  // Of an earlier life: under its own name, which CURRENT names, and under the
  // later one's.
  const fs::path manifest = Files("MANIFEST-")[0];
  const std::string old_manifest = Old("CURRENT");
  ASSERT_NE(ReadFile(PathOf("CURRENT")), old_manifest);
  WriteFile(PathOf("CURRENT"), old_manifest);
  ExpectRefused(PathOf("CURRENT"));
  WriteFile(PathOf(old_manifest.substr(0, old_manifest.size() - 1)),
            Old("MANIFEST-"));
  ExpectRefused(PathOf("CURRENT"));
  Restore();
  // Its tables are there still, so that all looks well.
  for (const auto& [name, bytes] : old_) {
    if (absl::EndsWith(name, ".sst")) WriteFile(PathOf(name), bytes);
  }
  std::string longer = Old("MANIFEST-");
  while (longer.size() < fs::file_size(manifest)) longer += Old("MANIFEST-");
  WriteFile(manifest, longer);
  ExpectRefused(manifest);
}

TEST_F(WholeFilesTest, NotesForPeopleAndLocksMatterNot) {
  for (const char* note : {"OPTIONS", "LOG", "IDENTITY", "LOCK"}) {
    SCOPED_TRACE(note);
    Restore();
    for (const fs::path& file : Files(note)) WriteFile(file, "");
    ExpectWhole();
    Restore();
    for (const fs::path& file : Files(note)) fs::remove(file);
    ExpectWhole();
  }
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

TEST_F(RocksdbStoreTest, AStoreWithoutAMarkGetsOne) {
  COHORT_ASSERT_OK(MustOpen()->Append(0, Term(7)));
  RocksdbMark whole;
  auto* const env = rocksdb::Env::Default();
  ASSERT_TRUE(ReadRocksdbMark(env, path(), whole).ok());
  EXPECT_EQ(whole.term, 7u);
  EXPECT_GT(whole.sequence, 0u);
  EXPECT_GT(whole.manifest.bytes, 0u);
  fs::remove(PathOf(".mark"));
  COHORT_EXPECT_OK(ReadEverything());
  RocksdbMark mark;
  ASSERT_TRUE(ReadRocksdbMark(env, path(), mark).ok());
  EXPECT_EQ(mark.term, 7u);
  EXPECT_EQ(mark.sequence, whole.sequence);
  EXPECT_GT(mark.manifest.bytes, 0u);
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
  EXPECT_EQ((*events)[0].number(), 1u);
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
    EXPECT_EQ((*events)[0].number(), 1u);
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

// After a power cut too, when the mark does not tell of it.
TEST_F(RocksdbStoreTest, ADamagedLastRecordIsNoTornOne) {
  {
    auto store = MustOpen();
    COHORT_ASSERT_OK(store->Append(0, {Event(1)}));
    COHORT_ASSERT_OK(store->Append(0, {Event(2)}));
  }
  ForgetTheEnd();
  std::string bytes = ReadFile(Files(".log")[0]);
  bytes[bytes.size() - 5] ^= 1;
  WriteFile(Files(".log")[0], bytes);
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(".log")));
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

}  // namespace
}  // namespace cohort::head
