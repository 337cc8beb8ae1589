// What is forgotten leaves the disk too: a head over RocksDB that stores many
// times what its caps allow.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "head/state/cluster_state.h"
#include "head/state/rows.h"
#include "head/store/rocksdb_store.h"
#include "head/testing/job_specs.h"
#include "head/testing/no_links.h"

namespace cohort::head {
namespace {

constexpr int64_t kJobBytesMax = 1 << 20;
constexpr int64_t kEventBytesMax = 256 << 10;
// RocksDB's own: a log of 16 MiB, which is what it keeps in memory too, and
// tables that wait to be merged.
constexpr int64_t kRoomOnDisk = 48 << 20;
constexpr int kJobs = 8'000;
constexpr size_t kJobBytes = 16'000;

class HistoryStoreTest : public ::testing::Test, public NoLinks {
 protected:
  HistoryStoreTest() {
    limits_.history.jobs.bytes_max = kJobBytesMax;
    limits_.history.events.bytes_max = kEventBytesMax;
    limits_.history.requests.count_max = 100;
    limits_.history.requests.age_min = absl::ZeroDuration();
  }

  void Start() {
    state_.reset();
    store_.reset();
    auto store =
        RocksdbStore::Open({.path = dir_.File("store"), .sync = false});
    COHORT_ASSERT_OK(store);
    store_ = *std::move(store);
    absl::StatusOr<Rows> rows = LoadRows(*store_);
    COHORT_ASSERT_OK(rows);
    const uint64_t term = rows->cluster ? rows->cluster->term() : 0;
    state_ = std::make_unique<ClusterState>(limits_, time_, random_, *this,
                                            *this, *std::move(rows));
    Transition transition;
    state_->TakeTerm(transition);
    COHORT_ASSERT_OK(store_->Append(term, transition.TakeBatch()));
  }

  void Submit(Transition transition) {
    const Batch batch = transition.TakeBatch();
    if (batch.empty()) return;
    written_ += static_cast<int64_t>(BytesOf(batch));
    COHORT_ASSERT_OK(store_->Append(state_->cluster().term(), batch));
  }

  RequestKey Key() {
    return {.principal = "cluster",
            .request_id = absl::StrCat("request-", ++requests_),
            .body_hash = "body"};
  }

  void AddEnded() {
    JobSpec spec = OneWorker();
    SetCommand(spec, {"train", std::string(kJobBytes, 'x')});
    Transition added;
    const auto job = state_->SubmitJob(Key(), "default", spec, added);
    COHORT_ASSERT_OK(job);
    Submit(std::move(added));
    Transition stopped;
    COHORT_ASSERT_OK(state_->StopJob(Key(), *job, stopped));
    Submit(std::move(stopped));
  }

  int64_t BytesOnDisk() {
    int64_t bytes = 0;
    for (const auto& file :
         std::filesystem::directory_iterator(dir_.File("store"))) {
      std::error_code gone;  // RocksDB removes files meanwhile
      const auto size = file.file_size(gone);
      if (!gone) bytes += static_cast<int64_t>(size);
    }
    return bytes;
  }

  TempDir dir_;
  ClusterLimits limits_;
  ManualExecutor time_;
  SeededRandom random_{5};
  std::unique_ptr<RocksdbStore> store_;
  std::unique_ptr<ClusterState> state_;
  int requests_ = 0;
  int64_t written_ = 0;
};

// HI-1.
TEST_F(HistoryStoreTest, WhatIsForgottenLeavesTheDisk) {
  Start();
  int64_t most = 0;
  for (int i = 0; i < kJobs; ++i) {
    AddEnded();
    if (i % 100 == 0) most = std::max(most, BytesOnDisk());
    for (const HistoryLevel& level : state_->HistoryLevels()) {
      ASSERT_LE(level.bytes, level.caps.bytes_max) << level.kind;
      ASSERT_LE(level.count, level.caps.count_max) << level.kind;
    }
  }
  RecordProperty("most", absl::StrCat(most));
  EXPECT_GT(written_, 2 * kRoomOnDisk);
  EXPECT_LE(most, kJobBytesMax + kEventBytesMax + kRoomOnDisk);

  Start();
  const absl::StatusOr<Rows> rows = LoadRows(*store_);
  COHORT_ASSERT_OK(rows);
  EXPECT_LE(rows->jobs.size(), kJobBytesMax / kJobBytes);
  EXPECT_GT(rows->jobs.size(), kJobBytesMax / kJobBytes / 2);
  EXPECT_EQ(rows->jobs.size(), state_->jobs().size());
}

}  // namespace
}  // namespace cohort::head
