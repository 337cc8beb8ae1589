#include "head/store/commit.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "common/status_util.h"
#include "common/testing/manual_executor.h"
#include "common/testing/seed.h"
#include "common/testing/status_matchers.h"
#include "head/store/memory_store.h"
#include "head/store/records_codec.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A commit over two hand-driven executors: `strand_` and the store's `disk_x_`.
class CommitTest : public ::testing::Test {
 protected:
  CommitTest() { Open(); }

  void Open() {
    store_ = std::make_unique<MemoryStore>(disk_);
    commit_ = std::make_unique<Commit>(
        *store_, store_executor_, strand_, /*term=*/0,
        [this](const absl::Status& status) { failures_.push_back(status); });
  }

  // A transition of one event row whose effect appends `name` to left_.
  Transition Event(uint64_t number, const std::string& name) {
    Transition transition;
    EventRecord event;
    event.set_number(number);
    transition.Put(event);
    transition.Then(Note(name));
    return transition;
  }

  Effect Note(const std::string& name) {
    return [this, name](const absl::Status& status) {
      left_.push_back(status.ok() ? name : absl::StrCat(name, ":failed"));
      statuses_.push_back(status);
    };
  }

  bool Stored(uint64_t number) {
    return disk_.Find(Table::kEvents, RowKey(number)).has_value();
  }

  // Lets both sides run until nothing is left.
  void RunAll() {
    while (strand_.pending() + store_executor_.pending() > 0) {
      store_executor_.RunUntilIdle();
      strand_.RunUntilIdle();
    }
  }

  MemoryDisk disk_;
  ManualExecutor strand_;
  ManualExecutor store_executor_;
  std::unique_ptr<MemoryStore> store_;
  std::unique_ptr<Commit> commit_;
  std::vector<std::string> left_;
  std::vector<absl::Status> statuses_;
  std::vector<absl::Status> failures_;
};

// CM-1
TEST_F(CommitTest, EffectsLeaveAfterTheRowsAreDurable) {
  commit_->Submit(Event(1, "one"));
  strand_.RunUntilIdle();
  EXPECT_THAT(left_, IsEmpty());
  EXPECT_FALSE(Stored(1));

  store_executor_.RunUntilIdle();
  EXPECT_TRUE(Stored(1));
  EXPECT_THAT(left_, IsEmpty()) << "effects belong to the strand";

  strand_.RunUntilIdle();
  EXPECT_THAT(left_, ElementsAre("one"));
  EXPECT_EQ(commit_->pending_count(), 0u);
  EXPECT_EQ(commit_->pending_bytes(), 0u);
}

TEST_F(CommitTest, WhatQueuesDuringASyncIsOneBatch) {
  commit_->Submit(Event(1, "one"));
  store_executor_.RunUntilIdle();
  commit_->Submit(Event(2, "two"));
  commit_->Submit(Event(3, "three"));
  EXPECT_EQ(commit_->pending_count(), 3u);
  EXPECT_GT(commit_->pending_bytes(), 3 * 8u);
  RunAll();

  EXPECT_THAT(left_, ElementsAre("one", "two", "three"));
  EXPECT_EQ(disk_.appends(), 2);
  EXPECT_EQ(commit_->counters().batches, 2u);
  EXPECT_EQ(commit_->counters().transitions, 3u);
  EXPECT_EQ(commit_->counters().rows, 3u);
}

TEST_F(CommitTest, TheClusterRowIsWrittenOnceABatchAsItWasLeft) {
  const auto counted = [&](uint64_t number) {
    Transition transition = Event(number, absl::StrCat(number));
    ClusterRecord cluster = NewCluster();
    cluster.set_next_event(number + 1);
    transition.Put(cluster);
    return transition;
  };
  commit_->Submit(counted(1));
  store_executor_.RunUntilIdle();
  for (uint64_t number = 2; number <= 4; ++number) {
    commit_->Submit(counted(number));
  }
  RunAll();

  EXPECT_THAT(left_, ElementsAre("1", "2", "3", "4"));
  EXPECT_EQ(commit_->counters().batches, 2u);
  EXPECT_EQ(commit_->counters().rows, 4u + 2u);
  MemoryStore store(disk_);
  const auto clusters = LoadRecords<ClusterRecord>(store);
  COHORT_ASSERT_OK(clusters.status());
  ASSERT_EQ(clusters->size(), 1u);
  EXPECT_EQ(clusters->front().next_event(), 5u);
}

TEST_F(CommitTest, ATransitionOfTheClusterRowAloneIsARowToo) {
  commit_->Submit(Event(1, "one"));
  store_executor_.RunUntilIdle();
  Transition transition;
  transition.Put(NewCluster());
  transition.Then([this](const absl::Status&) { left_.push_back("cluster"); });
  commit_->Submit(std::move(transition));
  commit_->AfterDurable(
      [this](const absl::Status&) { left_.push_back("read"); });
  strand_.RunUntilIdle();
  EXPECT_THAT(left_, ElementsAre("one"));
  RunAll();
  EXPECT_THAT(left_, ElementsAre("one", "cluster", "read"));
}

// CM-2
TEST_F(CommitTest, RowsOfOneTransitionAreThereTogether) {
  disk_.FailAfter(1, AppendFault::kNotLanded);
  commit_->Submit(Event(1, "one"));
  store_executor_.RunUntilIdle();
  Transition two = Event(2, "two");
  two.Put(JobRecord());
  two.Delete<EventRecord>(1);
  commit_->Submit(std::move(two));
  RunAll();

  EXPECT_TRUE(Stored(1));
  EXPECT_FALSE(Stored(2));
  EXPECT_EQ(disk_.Find(Table::kJobs, RowKey(JobId())), std::nullopt);
}

TEST_F(CommitTest, TheLaterWriteOfARowWins) {
  commit_->Submit(Event(1, "sync"));
  for (const uint64_t term : {0, 0}) {
    Transition transition;
    ClusterRecord record = NewCluster();
    record.set_term(term);
    record.set_next_event(commit_->pending_count());
    transition.Put(record);
    commit_->Submit(std::move(transition));
  }
  RunAll();

  const auto records = LoadRecords<ClusterRecord>(*store_);
  COHORT_ASSERT_OK(records);
  ASSERT_EQ(records->size(), 1u);
  EXPECT_EQ((*records)[0].next_event(), 2u);
}

TEST_F(CommitTest, AReadWaitsForWhatItCouldHaveSeen) {
  commit_->Submit(Event(1, "one"));
  commit_->AfterDurable(Note("read1"));
  store_executor_.RunUntilIdle();
  commit_->Submit(Event(2, "two"));
  commit_->AfterDurable(Note("read2"));
  strand_.RunOne();

  EXPECT_THAT(left_, ElementsAre("one", "read1"));
  RunAll();
  EXPECT_THAT(left_, ElementsAre("one", "read1", "two", "read2"));
}

TEST_F(CommitTest, AReadWithNothingPendingLeavesSoonButNotInline) {
  commit_->AfterDurable(Note("read"));
  EXPECT_THAT(left_, IsEmpty());
  strand_.RunUntilIdle();
  EXPECT_THAT(left_, ElementsAre("read"));
  EXPECT_EQ(disk_.appends(), 0);
}

TEST_F(CommitTest, ATransitionWithoutRowsIsARead) {
  Transition transition;
  transition.Then(Note("a"));
  transition.Then(Note("b"));
  commit_->Submit(std::move(transition));
  EXPECT_THAT(left_, IsEmpty());
  RunAll();
  EXPECT_THAT(left_, ElementsAre("a", "b"));
  EXPECT_EQ(commit_->counters().batches, 0u);
}

// CM-3
TEST_F(CommitTest, AFailureEndsAllEffectsAndIsToldOnce) {
  disk_.FailAfter(0, AppendFault::kLanded);
  commit_->Submit(Event(1, "one"));
  store_executor_.RunUntilIdle();
  commit_->Submit(Event(2, "two"));
  commit_->AfterDurable(Note("read"));
  RunAll();

  EXPECT_THAT(left_, ElementsAre("one:failed", "two:failed", "read:failed"));
  for (const absl::Status& status : statuses_) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                                 HasSubstr("outcome unknown")));
    EXPECT_EQ(GetReason(status), "outcome_unknown");
  }
  ASSERT_EQ(failures_.size(), 1u);
  EXPECT_TRUE(commit_->failed());
  EXPECT_TRUE(Stored(1)) << "it landed all the same";
  EXPECT_FALSE(Stored(2)) << "nothing is written after a failure";
  EXPECT_EQ(commit_->pending_count(), 0u);
}

TEST_F(CommitTest, AfterAFailureNothingIsWrittenAndAllIsUnavailable) {
  disk_.FailAfter(0, AppendFault::kNotLanded);
  commit_->Submit(Event(1, "one"));
  RunAll();
  left_.clear();
  statuses_.clear();

  commit_->Submit(Event(2, "two"));
  commit_->AfterDurable(Note("read"));
  EXPECT_THAT(left_, IsEmpty()) << "never inline";
  RunAll();
  EXPECT_THAT(left_, ElementsAre("two:failed", "read:failed"));
  EXPECT_EQ(GetReason(statuses_[0]), "read_only");
  EXPECT_FALSE(Stored(2));
  EXPECT_EQ(failures_.size(), 1u);
}

TEST_F(CommitTest, ALostFenceIsTold) {
  Transition transition;
  ClusterRecord record = NewCluster();
  record.set_term(7);
  transition.Put(record);
  COHORT_ASSERT_OK(MemoryStore(disk_).Append(0, transition.TakeBatch()));

  commit_->Submit(Event(1, "one"));
  RunAll();
  EXPECT_THAT(left_, ElementsAre("one:failed"));
  EXPECT_THAT(failures_,
              ElementsAre(StatusIs(absl::StatusCode::kFailedPrecondition)));
}

TEST_F(CommitTest, AnEffectMaySubmit) {
  Transition transition = Event(1, "one");
  transition.Then([this](const absl::Status&) {
    commit_->Submit(Event(2, "two"));
    commit_->AfterDurable(Note("read"));
  });
  commit_->Submit(std::move(transition));
  RunAll();
  EXPECT_THAT(left_, ElementsAre("one", "two", "read"));
}

TEST_F(CommitTest, AnEffectMayEndTheCommit) {
  Transition transition;
  EventRecord event;
  transition.Put(event);
  transition.Then([this](const absl::Status&) { commit_.reset(); });
  transition.Then(Note("later"));
  commit_->Submit(std::move(transition));
  store_executor_.RunUntilIdle();
  commit_->Submit(Event(2, "two"));
  RunAll();
  EXPECT_THAT(left_, ElementsAre("later", "two:failed"));
  EXPECT_THAT(failures_, IsEmpty());
}

TEST_F(CommitTest, PendingEffectsHearOfItsEnd) {
  commit_->Submit(Event(1, "one"));
  commit_->Submit(Event(2, "two"));
  commit_.reset();
  EXPECT_THAT(left_, IsEmpty()) << "never inline";
  RunAll();
  EXPECT_THAT(left_, ElementsAre("one:failed", "two:failed"));
  EXPECT_THAT(failures_, IsEmpty());
}

// A random schedule of both executors, submits, reads and one failure: every
// effect runs once and in order; those with OK have their row (CM-1), and what
// failed leaves nothing half (CM-2).
TEST_F(CommitTest, KeepsItsPromisesInAnySchedule) {
  const uint64_t seed = TestSeed();
  SeededRandom random(seed);
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(absl::StrCat("seed ", seed, " round ", round));
    MemoryDisk disk;
    ManualExecutor strand;
    ManualExecutor store_executor;
    MemoryStore store(disk);
    int failures = 0;
    Commit commit(store, store_executor, strand, 0,
                  [&failures](const absl::Status&) { ++failures; });
    if (random.Below(2) == 0) {
      disk.FailAfter(static_cast<int>(random.Below(10)),
                     random.Below(2) == 0 ? AppendFault::kLanded
                                          : AppendFault::kNotLanded);
    }
    uint64_t submitted = 0;  // rows 1..submitted
    int effects = 0;
    std::vector<int> order;
    const auto check = [&](int effect, uint64_t rows) {
      return [&, effect, rows](const absl::Status& status) {
        order.push_back(effect);
        if (!status.ok()) return;
        for (uint64_t row = 1; row <= rows; ++row) {
          EXPECT_TRUE(disk.Find(Table::kEvents, RowKey(row)).has_value());
        }
      };
    };
    for (int step = 0; step < 60; ++step) {
      switch (random.Below(4)) {
        case 0: {
          Transition transition;
          EventRecord event;
          event.set_number(++submitted);
          transition.Put(event);
          PackageRecord twin;  // its companion in the same transition
          twin.set_hash(RowKey(submitted));
          transition.Put(twin);
          transition.Then(check(effects++, submitted));
          commit.Submit(std::move(transition));
          break;
        }
        case 1:
          commit.AfterDurable(check(effects++, submitted));
          break;
        case 2:
          store_executor.RunOne();
          break;
        case 3:
          strand.RunOne();
          break;
      }
    }
    while (strand.pending() + store_executor.pending() > 0) {
      store_executor.RunOne();
      strand.RunOne();
    }
    ASSERT_EQ(order.size(), static_cast<size_t>(effects));
    for (int i = 0; i < effects; ++i)
      ASSERT_EQ(order[static_cast<size_t>(i)], i);
    EXPECT_EQ(failures, disk.faults_fired());
    for (uint64_t row = 1; row <= submitted; ++row) {
      EXPECT_EQ(disk.Find(Table::kEvents, RowKey(row)).has_value(),
                disk.Find(Table::kPackages, RowKey(row)).has_value());
    }
  }
}

}  // namespace
}  // namespace cohort::head
