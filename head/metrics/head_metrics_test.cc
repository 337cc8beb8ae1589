#include "head/metrics/head_metrics.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "head/metrics/metrics_page.h"
#include "head/state/testing/cluster_state_fixture.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;

class HeadMetricsTest : public ClusterStateTest {
 protected:
  // The lines of the page that begin so and do not end with 0.
  std::vector<std::string> Lines(absl::string_view begin) {
    const std::string page =
        RenderMetrics(HeadMetrics(SampleOf(*state_)), MetricsFormat::kText);
    std::vector<std::string> lines;
    for (absl::string_view line : absl::StrSplit(page, '\n')) {
      if (!absl::StartsWith(line, begin) || absl::EndsWith(line, " 0"))
        continue;
      lines.emplace_back(line.substr(begin.size()));
    }
    return lines;
  }
  absl::Status Release(const JobId& job) {
    Transition transition;
    const absl::Status status = state_->ReleaseJob(
        {.principal = "ada", .request_id = job.ToText(), .body_hash = "h"}, job,
        transition);
    Submit(std::move(transition));
    return status;
  }
};

TEST_F(HeadMetricsTest, CountsWhoWaitsAtEachGate) {
  Join(a_, 2);
  JobSpec again = Spec(1, 1);
  again.mutable_run()->set_max_failures(1);
  again.mutable_run()->set_retry_delay_us(60'000'000);
  const JobId failed = SubmitJob(again);
  Run(failed);
  JobSpec some = Spec(1, 2);
  some.set_array("0-5%2");
  const JobId array = SubmitJob(some);  // one of its two places has no room
  Say(a_, Exited(failed, a_, 1));
  JobSpec held = Spec(1, 1);
  held.set_hold(true);
  const JobId first_held = SubmitJob(held);
  SubmitJob(held);
  JobSpec after = Spec(1, 1);
  AddAfter(after, array, v1::DEPENDENCY_KIND_ANY);
  const JobId last = SubmitJob(after);
  JobSpec later = Spec(1, 1);
  later.set_start_in_us(absl::ToInt64Microseconds(absl::Hours(1)));
  SubmitJob(later);
  const auto waits = [this] { return Lines("cohort_jobs_waiting"); };
  const auto all =
      ElementsAre("{reason=\"after\"} 1", "{reason=\"array\"} 4",
                  "{reason=\"back_off\"} 1", "{reason=\"held\"} 2",
                  "{reason=\"resources\"} 1", "{reason=\"start_time\"} 1");
  EXPECT_THAT(waits(), all);
  Reload();
  EXPECT_THAT(waits(), all);

  COHORT_ASSERT_OK(Release(first_held));
  COHORT_ASSERT_OK(StopJob(array));
  COHORT_ASSERT_OK(StopJob(failed));
  COHORT_ASSERT_OK(StopJob(last));
  EXPECT_THAT(waits(),
              ElementsAre("{reason=\"held\"} 1", "{reason=\"resources\"} 1",
                          "{reason=\"start_time\"} 1"));
}

TEST_F(HeadMetricsTest, HasTheLastNumbersOfRunningJobs) {
  Join(a_, 1);
  JobSpec spec = Spec(1, 1);
  spec.set_name("mnist");
  const JobId job = SubmitJob(spec);
  Run(job);
  Say(a_, WithMetrics(At(job, Stage::kRunning), 0, 1,
                      R"({"loss/\"a\"":0.5,"note":"x","step":7})"));
  const std::string labels = absl::StrCat("{job_id=\"", job.ToText(),
                                          "\",job_name=\"mnist\",metric=\"");
  EXPECT_THAT(
      Lines("cohort_job_metric"),
      ElementsAre(labels + "loss/\\\"a\\\"\"} 0.5", labels + "step\"} 7"));
  Say(a_, Exited(job, a_, 0));
  EXPECT_THAT(Lines("cohort_job_metric"), ElementsAre());
}

}  // namespace
}  // namespace cohort::head
