#include "head/metrics/metrics_page.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::head {
namespace {

using ::testing::HasSubstr;

std::vector<MetricFamily> Example() {
  MetricFamily jobs = Gauge("cohort_jobs", "Jobs by state.");
  jobs.Add({{"state", "RUNNING"}}, 3);
  jobs.Add({{"state", "a\\b\"c\nd\xff"}}, 0.25);
  return {jobs, Counter("cohort_events_total", "Events.", 12345678901)};
}

TEST(MetricsPage, WritesPrometheusText) {
  EXPECT_EQ(RenderMetrics(Example(), MetricsFormat::kText),
            "# HELP cohort_jobs Jobs by state.\n"
            "# TYPE cohort_jobs gauge\n"
            "cohort_jobs{state=\"RUNNING\"} 3\n"
            "cohort_jobs{state=\"a\\\\b\\\"c\\nd?\"} 0.25\n"
            "# HELP cohort_events_total Events.\n"
            "# TYPE cohort_events_total counter\n"
            "cohort_events_total 12345678901\n");
}

TEST(MetricsPage, WritesOpenMetrics) {
  EXPECT_EQ(RenderMetrics(Example(), MetricsFormat::kOpenMetrics),
            "# HELP cohort_jobs Jobs by state.\n"
            "# TYPE cohort_jobs gauge\n"
            "cohort_jobs{state=\"RUNNING\"} 3\n"
            "cohort_jobs{state=\"a\\\\b\\\"c\\nd?\"} 0.25\n"
            "# HELP cohort_events Events.\n"
            "# TYPE cohort_events counter\n"
            "cohort_events_total 12345678901\n"
            "# EOF\n");
}

TEST(MetricsPage, WritesAHistogram) {
  MetricFamily took;
  took.name = "took_seconds";
  took.help = "How long.";
  took.type = MetricType::kHistogram;
  Histogram histogram;
  histogram.Add(absl::Microseconds(100));  // a bound holds what equals it
  histogram.Add(absl::Milliseconds(2));
  histogram.Add(absl::Seconds(60));
  took.samples.push_back(
      {.labels = {{"method", "Get"}}, .value = 0, .histogram = histogram});
  const std::string text = RenderMetrics({took}, MetricsFormat::kText);
  EXPECT_THAT(text, HasSubstr("# TYPE took_seconds histogram\n"));
  EXPECT_THAT(
      text, HasSubstr("took_seconds_bucket{method=\"Get\",le=\"0.0001\"} 1\n"));
  EXPECT_THAT(
      text, HasSubstr("took_seconds_bucket{method=\"Get\",le=\"0.001\"} 1\n"));
  EXPECT_THAT(
      text, HasSubstr("took_seconds_bucket{method=\"Get\",le=\"0.0025\"} 2\n"));
  EXPECT_THAT(text,
              HasSubstr("took_seconds_bucket{method=\"Get\",le=\"10\"} 2\n"
                        "took_seconds_bucket{method=\"Get\",le=\"+Inf\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("took_seconds_sum{method=\"Get\"} 60.0021\n"));
  EXPECT_THAT(text, HasSubstr("took_seconds_count{method=\"Get\"} 3\n"));
  EXPECT_THAT(RenderMetrics({took}, MetricsFormat::kOpenMetrics),
              HasSubstr("le=\"10.0\"} 2\n"));
}

TEST(MetricsPage, WritesWhatHasNoEnd) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_THAT(
      RenderMetrics({Gauge("a", "A.", infinity), Gauge("b", "B.", -infinity)},
                    MetricsFormat::kText),
      testing::AllOf(HasSubstr("a +Inf\n"), HasSubstr("b -Inf\n")));
}

TEST(MetricsPage, GivesOpenMetricsToThoseWhoAskForIt) {
  // What Prometheus 2.42 and 3 send, curl, a browser.
  EXPECT_EQ(FormatFor("application/openmetrics-text;version=1.0.0,"
                      "application/openmetrics-text;version=0.0.1;q=0.75,"
                      "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"),
            MetricsFormat::kOpenMetrics);
  EXPECT_EQ(FormatFor("text/plain;version=0.0.4;q=1,"
                      "application/openmetrics-text;q=0.5"),
            MetricsFormat::kText);
  EXPECT_EQ(FormatFor("*/*"), MetricsFormat::kText);
  EXPECT_EQ(FormatFor(""), MetricsFormat::kText);
  EXPECT_EQ(FormatFor("application/openmetrics-text;q=0"),
            MetricsFormat::kText);
  EXPECT_EQ(FormatFor(";,;q=,q"), MetricsFormat::kText);
}

}  // namespace
}  // namespace cohort::head
