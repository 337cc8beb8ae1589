#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rocksdb/env.h"

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "head/store/records_codec.h"
#include "head/store/rocksdb_store.h"

namespace cohort::head {

inline Batch Term(uint64_t term) {
  ClusterRecord record = NewCluster();
  record.set_term(term);
  return {ToWrite(record)};
}

inline Write Event(uint64_t number, size_t size = 20) {
  EventRecord event;
  event.set_number(number);
  event.set_text(std::string(size, 'x'));
  return ToWrite(event);
}

inline std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void WriteFile(const std::filesystem::path& path,
                      const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// A store in a directory of its own, and what is done to its files.
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
  std::vector<std::filesystem::path> Files(const std::string& part) const {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(path())) {
      if (absl::StrContains(entry.path().filename().string(), part)) {
        files.push_back(entry.path());
      }
    }
    return files;
  }

  // As after a power cut, at worst: the mark is as the last start wrote it.
  void ForgetTheEnd() const {
    auto* const env = rocksdb::Env::Default();
    RocksdbMark mark;
    ASSERT_TRUE(ReadRocksdbMark(env, path(), mark).ok());
    mark.sequence = 0;
    ASSERT_TRUE(WriteRocksdbMark(env, path(), mark).ok());
  }

  // What kill -9 would leave now of the store at `live`, as path().
  void CopyKilled(const std::string& live) const {
    std::filesystem::remove_all(path());
    std::filesystem::copy(live, path(),
                          std::filesystem::copy_options::recursive);
    std::filesystem::copy(RocksdbMarkPath(live), RocksdbMarkPath(path()),
                          std::filesystem::copy_options::overwrite_existing);
  }

  // The bytes of the store and what is beside it, by name.
  std::map<std::string, std::string> Bytes() const {
    std::map<std::string, std::string> bytes;
    for (const auto& entry : std::filesystem::directory_iterator(path())) {
      bytes[entry.path().filename().string()] = ReadFile(entry.path());
    }
    for (const char* beside : {".mark", ".mark.new"}) {
      if (std::filesystem::exists(path() + beside)) {
        bytes[beside] = ReadFile(path() + beside);
      }
    }
    return bytes;
  }
  std::filesystem::path PathOf(const std::string& name) const {
    return name.front() == '.' ? std::filesystem::path(path() + name)
                               : std::filesystem::path(path()) / name;
  }

  // The whole store to and from `copy`.
  void Save() const {
    std::filesystem::copy(path(), dir_.File("copy"),
                          std::filesystem::copy_options::recursive);
    std::filesystem::copy(RocksdbMarkPath(path()), dir_.File("copy.mark"));
  }
  void Restore() const {
    std::filesystem::remove_all(path());
    std::filesystem::copy(dir_.File("copy"), path(),
                          std::filesystem::copy_options::recursive);
    std::filesystem::copy(dir_.File("copy.mark"), RocksdbMarkPath(path()),
                          std::filesystem::copy_options::overwrite_existing);
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

}  // namespace cohort::head
