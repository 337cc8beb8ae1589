#include "head/explain/wait_history.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"
#include "head/store/memory_store.h"
#include "head/store/records_codec.h"
#include "head/testing/job_specs.h"
#include "head/testing/messages.h"

namespace cohort::head {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class WaitHistoryTest : public ::testing::Test {
 protected:
  WaitHistoryTest() { Start(); }

  // As a restart of the head: what is stored.
  void Start() {
    history_ = std::make_unique<WaitHistory>(limits_, caps_, time_, Rows());
  }

  void AddNode(int cpus) {
    NodeRecord record;
    record.id = NodeId::New(random_);
    record.node.set_name(absl::StrCat("n", nodes_.records().size()));
    SetResource(record.node, kCpu, Amount::FromUnits(cpus));
    nodes_.Put(record);
    nodes_.Offer(record.id);
  }

  JobRecord Job(int cpus) {
    JobRecord job(JobId::New(random_));
    job.row.set_sequence(++sequence_);
    JobSpec spec = OneWorker();
    spec.mutable_scaling()->set_num_workers(1);
    SetResource(spec, kCpu, Amount::FromUnits(cpus));
    job.spec = spec;
    return job;
  }
  JobRecord Wait(int cpus) {
    const JobRecord job = Job(cpus);
    line_.Add(job);
    line_.Refuse({job.id}, {.reason = "no room"});
    return job;
  }

  std::vector<WaitReasonRecord> Rows() {
    MemoryStore store(disk_);
    auto rows = LoadRecords<WaitReasonRecord>(store);
    COHORT_EXPECT_OK(rows.status());
    return *std::move(rows);
  }
  // A tick: its rows are stored.
  size_t Look() {
    Transition transition;
    history_->Look(line_, nodes_, attempts_, transition);
    const Batch batch = transition.TakeBatch();
    COHORT_EXPECT_OK(MemoryStore(disk_).Append(0, batch));
    return batch.size();
  }

  const v1::WaitReason* At(const JobRecord& job, absl::Time at) {
    const auto reasons =
        history_->Between(ShapeKeyOf(RequestOf(*job.spec)), at, at);
    return reasons.empty() ? nullptr : reasons.back();
  }
  absl::Time Now() { return time_.Wall(); }

  ManualExecutor time_;
  SeededRandom random_{1};
  uint64_t sequence_ = 0;
  NodeTable nodes_;
  AttemptTable attempts_;
  WaitingLine line_;
  WaitHistory::Limits limits_;
  HistoryCaps caps_ = HistoryLimits().wait_reasons;
  MemoryDisk disk_;
  std::unique_ptr<WaitHistory> history_;
};

TEST_F(WaitHistoryTest, EqualRequestsShareAReasonThatIsStoredOnce) {
  AddNode(2);
  const JobRecord job = Wait(4);
  Wait(4);

  EXPECT_EQ(Look(), 1u);
  EXPECT_EQ(Look(), 0u);

  ASSERT_THAT(Rows(), SizeIs(1));
  const v1::WaitReason* const reason = At(job, Now());
  ASSERT_NE(reason, nullptr);
  EXPECT_EQ(reason->blocker().nodes(), 1);
  ASSERT_THAT(reason->blocker().failures(), SizeIs(1));
  const v1::NodeFailure& failure = reason->blocker().failures(0);
  EXPECT_EQ(failure.by(), "resource");
  EXPECT_EQ(failure.what(), "CPU");
  EXPECT_EQ(failure.short_least(), Amount::FromUnits(2).ten_thousandths());
}

TEST_F(WaitHistoryTest, NotesAnotherReasonOnlyWhenItChangedAndNotTooOften) {
  AddNode(2);
  const JobRecord job = Wait(4);
  Look();
  const absl::Time first = Now();

  time_.AdvanceBy(absl::Seconds(1));
  AddNode(3);
  EXPECT_EQ(Look(), 0u) << "sooner than the pace";
  time_.AdvanceBy(limits_.pace);
  EXPECT_EQ(Look(), 2u) << "one ends, one begins";

  EXPECT_EQ(At(job, first)->blocker().nodes(), 1);
  EXPECT_EQ(At(job, Now())->blocker().nodes(), 2);
  EXPECT_THAT(history_->Between(ShapeKeyOf(RequestOf(*job.spec)), first, Now()),
              SizeIs(2));
}

// EX-3.
TEST_F(WaitHistoryTest, AReasonIsOverOnceNobodyWaits) {
  AddNode(2);
  const JobRecord job = Wait(4);
  Look();
  time_.AdvanceBy(absl::Hours(1));
  line_.Remove(job);
  EXPECT_EQ(Look(), 1u);

  time_.AdvanceBy(absl::Seconds(1));
  EXPECT_EQ(At(job, Now()), nullptr);
  EXPECT_NE(At(job, Now() - absl::Minutes(1)), nullptr);
}

TEST_F(WaitHistoryTest, OutlivesAHead) {
  AddNode(2);
  const JobRecord waits = Wait(4);
  const JobRecord gone = Wait(5);
  while (Look() > 0) {
  }
  ASSERT_THAT(Rows(), SizeIs(2));
  const absl::Time before = Now();
  line_.Remove(gone);
  Start();
  time_.AdvanceBy(absl::Seconds(1));
  while (Look() > 0) {
  }

  EXPECT_THAT(Rows(), SizeIs(2)) << "the one that still holds goes on";
  EXPECT_EQ(At(waits, Now())->since_us(), At(waits, before)->since_us());
  EXPECT_NE(At(gone, before), nullptr);
  time_.AdvanceBy(absl::Seconds(1));
  EXPECT_EQ(At(gone, Now()), nullptr);
}

TEST_F(WaitHistoryTest, IsBoundedByCountBytesAndAge) {
  caps_.count_max = 5;
  Start();
  AddNode(2);
  for (int cpus = 3; cpus < 13; ++cpus) Wait(cpus);
  while (Look() > 0) {
    ASSERT_LE(history_->size(), 5);
  }
  EXPECT_THAT(Rows(), SizeIs(5));

  caps_ = HistoryLimits().wait_reasons;
  caps_.bytes_max = history_->Level().bytes / 2;
  Start();
  Look();
  EXPECT_LE(history_->Level().bytes, caps_.bytes_max);
  EXPECT_THAT(Rows(), SizeIs(history_->size()));

  line_ = WaitingLine();
  while (Look() > 0) {
  }
  time_.AdvanceBy(caps_.age_max + absl::Hours(1));
  Look();
  EXPECT_THAT(Rows(), IsEmpty());
}

TEST_F(WaitHistoryTest, ALookIsShort) {
  AddNode(2);
  for (int cpus = 3; cpus < 103; ++cpus) Wait(cpus);

  EXPECT_LE(Look(), static_cast<size_t>(limits_.diagnoses_per_look));
  int looks = 1;
  while (Look() > 0) ++looks;

  EXPECT_THAT(Rows(), SizeIs(100));
  EXPECT_GE(looks, 50);
}

TEST(ShapeKeyTest, DiffersWithWhatIsAskedFor) {
  GangRequest request;
  const std::string key = ShapeKeyOf(request);
  EXPECT_EQ(key.size(), 16u);
  EXPECT_EQ(key, ShapeKeyOf(request));
  GangRequest larger = request;
  larger.ranks_per_node_max = kProcessesPerNodeMax;
  EXPECT_NE(key, ShapeKeyOf(larger));
  request.tolerations = {{.key = "lab", .value = {}}};
  EXPECT_NE(key, ShapeKeyOf(request));
}

}  // namespace
}  // namespace cohort::head
