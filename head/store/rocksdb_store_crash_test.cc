// The disk forgets what was not synced: RocksdbStore over TornFileSystem.
//
// Each round lives through some crashes at random points, after which the store
// must hold exactly the batches it acknowledged, and of the one that was in
// flight all or nothing (RS-1).  The last test switches syncing off and expects
// the same check to fail, because a check that cannot fail proves nothing.

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rocksdb/env.h"

#include "common/random.h"
#include "common/status_util.h"
#include "common/testing/seed.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "head/store/records_codec.h"
#include "head/store/rocksdb_store.h"
#include "head/store/testing/torn_file_system.h"

namespace cohort::head {
namespace {

using Rows = std::map<std::pair<Table, std::string>, std::string>;

void Apply(const Batch& batch, Rows& rows) {
  for (const Write& write : batch) {
    if (write.value.has_value()) {
      rows[{write.table, write.key}] = *write.value;
    } else {
      rows.erase({write.table, write.key});
    }
  }
}

Batch RandomBatch(Random& random, const Rows& rows) {
  Batch batch;
  ClusterRecord cluster = NewCluster();
  cluster.set_next_event(random.Below(1000));
  batch.push_back(ToWrite(cluster));
  // Mostly small rows; some fill blocks of the log, and memtables.
  const size_t size_max = random.Below(5) == 0 ? 300'000 : 500;
  for (uint64_t n = 1 + random.Below(6); n > 0; --n) {
    EventRecord event;
    event.set_number(random.Below(10'000));
    event.set_text(random.Bytes(random.Below(size_max)));
    batch.push_back(ToWrite(event));
    PackageRecord package;
    package.set_hash(random.Bytes(8));
    batch.push_back(ToWrite(package));
  }
  if (!rows.empty() && random.Below(2) == 0) {
    const auto& key = rows.rbegin()->first;
    if (key.first != Table::kCluster) {
      batch.push_back({key.first, key.second, std::nullopt});
    }
  }
  return batch;
}

// A store on a disk that forgets, and what it must hold.
class CrashRound {
 public:
  CrashRound(uint64_t seed, bool sync)
      : random_(seed),
        sync_(sync),
        disk_(std::make_shared<TornFileSystem>(Made(dir_.File("disk")))),
        env_(rocksdb::NewCompositeEnv(disk_)) {}

  // Lives until a crash, reboots.  OK when the store kept its word so far.
  absl::Status LiveOnce() {
    if (random_.Below(4) != 0) {
      disk_->FailAfter(static_cast<int>(random_.Below(250)));
    }
    absl::Status status = OpenAndWrite();
    disk_->PowerOff();
    store_.reset();
    disk_->Reboot(random_);
    return status;
  }

  // Opens a last time and looks.
  absl::Status Finish() {
    absl::Status status = OpenAndCheck();
    store_.reset();
    return status;
  }

  const TornFileSystem& disk() const { return *disk_; }

 private:
  static std::string Made(const std::string& path) {
    std::filesystem::create_directory(path);
    return path;
  }

  absl::Status OpenAndWrite() {
    absl::Status status = OpenAndCheck();
    if (disk_->is_off()) return absl::OkStatus();
    if (!status.ok()) return status;
    for (uint64_t n = 1 + random_.Below(30); n > 0; --n) {
      const Batch batch = RandomBatch(random_, held_);
      maybe_ = held_;
      Apply(batch, maybe_);
      if (!store_->Append(0, batch).ok()) return absl::OkStatus();
      held_ = maybe_;
    }
    return absl::OkStatus();
  }

  // The store holds what was acknowledged, or that and the batch in flight.
  absl::Status OpenAndCheck() {
    auto store = RocksdbStore::Open({.path = dir_.File("disk") + "/store",
                                     .env = env_.get(),
                                     .sync = sync_});
    if (!store.ok()) return store.status();
    store_ = *std::move(store);
    Rows rows;
    for (const Table table : kAllTables) {
      auto loaded = store_->LoadAll(table);
      if (!loaded.ok()) return loaded.status();
      for (auto& [key, value] : *loaded) {
        rows[{table, std::move(key)}] = std::move(value);
      }
    }
    if (rows != held_ && rows != maybe_) {
      return absl::InternalError(
          absl::StrCat("the store holds ", rows.size(), " rows, not the ",
                       held_.size(), " it acknowledged nor the ", maybe_.size(),
                       " with the batch in flight"));
    }
    held_ = maybe_ = rows;
    return absl::OkStatus();
  }

  TempDir dir_;
  SeededRandom random_;
  const bool sync_;
  const std::shared_ptr<TornFileSystem> disk_;  // Shared: with the env.
  const std::unique_ptr<rocksdb::Env> env_;
  std::unique_ptr<RocksdbStore> store_;
  Rows held_;   // acknowledged
  Rows maybe_;  // and with the batch whose outcome is unknown
};

// RS-1
TEST(RocksdbStoreCrashTest, HoldsWhatItAcknowledgedAndNothingHalf) {
  const uint64_t seed = TestSeed();
  int bytes_forgotten = 0;
  int names_forgotten = 0;
  for (uint64_t round = 0; round < 12; ++round) {
    SCOPED_TRACE(absl::StrCat("seed ", seed, " round ", round));
    CrashRound store(seed + round, /*sync=*/true);
    for (int life = 0; life < 6; ++life) {
      COHORT_ASSERT_OK(store.LiveOnce()) << "life " << life;
    }
    COHORT_ASSERT_OK(store.Finish());
    bytes_forgotten += store.disk().bytes_forgotten();
    names_forgotten += store.disk().names_forgotten();
  }
  EXPECT_GT(bytes_forgotten, 0) << "no crash tore anything";
  EXPECT_GT(names_forgotten, 0) << "no crash lost a name";
}

TEST(RocksdbStoreCrashTest, WithoutSyncTheSameCheckFails) {
  const uint64_t seed = TestSeed();
  for (uint64_t round = 0; round < 25; ++round) {
    CrashRound store(seed + round, /*sync=*/false);
    absl::Status status;
    for (int life = 0; life < 6 && status.ok(); ++life) {
      status = store.LiveOnce();
    }
    if (status.ok()) status = store.Finish();
    // Now and then what was torn is seen at the open: no proof of the check.
    if (!status.ok() && !absl::IsDataLoss(status)) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal));
      return;
    }
  }
  FAIL() << "nothing was lost without syncing";
}

// What the file system says is free: nothing, or plenty, as under a quota.
class FullDiskTest : public ::testing::TestWithParam<uint64_t> {};

INSTANTIATE_TEST_SUITE_P(Free, FullDiskTest,
                         ::testing::Values(0, uint64_t{1} << 40));

TEST_P(FullDiskTest, IsUnavailableAndHealsWhenReopened) {
  TempDir dir;
  std::filesystem::create_directory(dir.File("disk"));
  auto disk = std::make_shared<TornFileSystem>(dir.File("disk"));
  const std::unique_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(disk);
  const auto open = [&](StoreAccess access = StoreAccess::kReadWrite) {
    return RocksdbStore::Open({.path = dir.File("disk") + "/store",
                               .access = access,
                               .env = env.get(),
                               .check_rows = false});
  };
  EXPECT_THAT(open(StoreAccess::kRead).status(),
              StatusIs(absl::StatusCode::kNotFound));
  auto store = open();
  COHORT_ASSERT_OK(store);
  COHORT_ASSERT_OK((*store)->Append(0, {{Table::kJobs, "a", "1"}}));

  disk->FillUp(GetParam());
  const absl::Status full = (*store)->Append(0, {{Table::kJobs, "b", "2"}});
  EXPECT_THAT(full, StatusIs(absl::StatusCode::kUnavailable,
                             ::testing::HasSubstr("is full; free space")));
  EXPECT_EQ(GetReason(full), "disk_full");
  store->reset();
  const absl::Status still_full = open().status();
  EXPECT_THAT(still_full, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(GetReason(still_full), "disk_full");
  // What was acknowledged can be read all the same (RS-3).
  auto reader = open(StoreAccess::kRead);
  COHORT_ASSERT_OK(reader);
  EXPECT_THAT((*reader)->LoadAll(Table::kJobs),
              IsOkAndHolds(::testing::ElementsAre(::testing::Pair("a", "1"))));
  reader->reset();

  disk->MakeRoom();
  store = open();
  COHORT_ASSERT_OK(store);
  COHORT_EXPECT_OK((*store)->Append(0, {{Table::kJobs, "c", "3"}}));
  const auto rows = (*store)->LoadAll(Table::kJobs);
  COHORT_ASSERT_OK(rows);
  EXPECT_EQ(rows->front().first, "a");
  EXPECT_EQ(rows->back().first, "c");
  store->reset();
}

}  // namespace
}  // namespace cohort::head
