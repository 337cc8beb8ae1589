#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "head/state/testing/cluster_state_fixture.h"

namespace cohort::head {
namespace {

// When the metrics that ranks report are in the row of their job.
class MetricsRowsTest : public ClusterStateTest {
 protected:
  MetricsRowsTest() {
    Join(a_, 1);
    job_ = SubmitJob(Spec(1, 1));
    Run(job_);
  }

  void Report(uint64_t count) {
    Say(a_, WithMetrics(At(job_, Stage::kRunning), 0, count, "{}"));
  }
  void ReportStep(uint64_t step) {
    Say(a_, WithMetrics(At(job_, Stage::kRunning), 0, step,
                        absl::StrCat("{\"step\":", step, ",\"loss\":1}")));
  }
  int StoredPoints() {
    MemoryStore reader(disk_);
    const Rows rows = *LoadRows(reader);
    return rows.metrics.empty() ? 0 : rows.metrics[0].history().points_size();
  }
  // Of the last report that is stored.
  uint64_t Stored() {
    MemoryStore reader(disk_);
    return LoadRows(reader)->jobs.at(0).row.metrics_count();
  }

  JobId job_;
};

TEST_F(MetricsRowsTest, TheFirstAreStoredAtOnceThenThoseOfOnePeriod) {
  Report(1);
  EXPECT_EQ(Stored(), 1u);
  Report(2);
  Pass(absl::Milliseconds(800), {a_});
  Report(3);
  EXPECT_EQ(Stored(), 1u);
  Pass(absl::Milliseconds(200), {a_});
  EXPECT_EQ(Stored(), 3u);
  const int before = disk_.appends();
  Pass(absl::Seconds(5), {a_});
  EXPECT_EQ(disk_.appends(), before) << "nothing newer came";
  // Long after the last: with the next tick.
  Report(4);
  Pass(limits_.tick_period, {a_});
  EXPECT_EQ(Stored(), 4u);
}

TEST_F(MetricsRowsTest, AJobThatEndedHasNoTurnAnyMore) {
  Report(1);
  Report(2);
  Say(a_, Exited(job_, a_, 0));
  EXPECT_EQ(Stored(), 2u);
  const int before = disk_.appends();
  Pass(absl::Seconds(5), {a_});
  EXPECT_EQ(disk_.appends(), before);
}

TEST_F(MetricsRowsTest, TheHistoryIsStoredWithTheJobAndFoundByTheNextHead) {
  for (uint64_t step = 1; step <= 3; ++step) ReportStep(step);
  Pass(absl::Seconds(1), {a_});
  EXPECT_EQ(StoredPoints(), 3);
  ReportStep(4);
  EXPECT_EQ(StoredPoints(), 3) << "a report writes no row of its own";
  Say(a_, Exited(job_, a_, 0));
  EXPECT_EQ(StoredPoints(), 4);
  EXPECT_THAT(state_->metrics().latest(), testing::IsEmpty());
  Reload();
  ASSERT_NE(state_->metrics().Find(job_), nullptr);
  EXPECT_EQ(state_->metrics().Find(job_)->history().points_size(), 4);
}

TEST_F(MetricsRowsTest, TheHistoryGoesWithItsJob) {
  ReportStep(1);
  Say(a_, Exited(job_, a_, 0));
  EXPECT_EQ(StoredPoints(), 1);
  Transition transition;
  COHORT_ASSERT_OK(state_->RemoveJob(
      {.principal = "ada", .request_id = "remove", .body_hash = "h"}, job_,
      transition));
  Submit(std::move(transition));
  EXPECT_EQ(StoredPoints(), 0);
  EXPECT_EQ(state_->metrics().Find(job_), nullptr);
}

}  // namespace
}  // namespace cohort::head
