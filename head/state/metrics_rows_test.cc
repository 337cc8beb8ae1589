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

}  // namespace
}  // namespace cohort::head
