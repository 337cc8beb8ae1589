#include "head/state/metrics_pace.h"

#include "gtest/gtest.h"

#include "common/random.h"
#include "common/testing/manual_executor.h"

namespace cohort::head {
namespace {

TEST(MetricsPace, StoresTheFirstAtOnceThenOneAPeriod) {
  ManualExecutor time;
  MetricsPace pace(absl::Seconds(1), time);
  SeededRandom random(1);
  const JobId job = JobId::New(random);
  std::set<JobId> due;
  EXPECT_TRUE(pace.Changed(job));
  EXPECT_FALSE(pace.Changed(job));
  pace.Due(due);
  EXPECT_TRUE(due.empty());
  time.AdvanceBy(absl::Seconds(1));
  pace.Due(due);
  EXPECT_EQ(due, std::set<JobId>{job});
  due.clear();
  time.AdvanceBy(absl::Seconds(5));
  pace.Due(due);
  EXPECT_TRUE(due.empty());  // nothing newer came
}

TEST(MetricsPace, ForgetsAJobThatEnded) {
  ManualExecutor time;
  MetricsPace pace(absl::Seconds(1), time);
  SeededRandom random(1);
  const JobId job = JobId::New(random);
  EXPECT_TRUE(pace.Changed(job));
  EXPECT_FALSE(pace.Changed(job));
  pace.Drop(job);
  time.AdvanceBy(absl::Seconds(5));
  std::set<JobId> due;
  pace.Due(due);
  EXPECT_TRUE(due.empty());
}

}  // namespace
}  // namespace cohort::head
