#include "client/metric_log.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(MetricLogTest, ReadsALineAStep) {
  const MetricLog log = ParseMetricLog(
      "{\"step\":2,\"loss\":0.25,\"note\":\"late\"}\n"
      "\n"
      "{\"step\":1,\"loss\":0.5}\n"
      "{\"step\":2,\"accuracy\":90,\"loss\":0.125}\n");
  EXPECT_THAT(
      log.rows,
      ElementsAre(
          MetricRow{.step = 1, .values = {{"loss", 0.5}}},
          MetricRow{.step = 2, .values = {{"accuracy", 90}, {"loss", 0.125}}}));
  EXPECT_EQ(log.bad_lines, 0);
}

TEST(MetricLogTest, LeavesOutALineThatIsBeingWritten) {
  EXPECT_EQ(
      ParseMetricLog("{\"step\":1,\"loss\":1}\n{\"step\":2,\"l").rows.size(),
      1u);
  EXPECT_THAT(ParseMetricLog("{\"step\":1").rows, IsEmpty());
  EXPECT_THAT(ParseMetricLog("").rows, IsEmpty());
}

TEST(MetricLogTest, CountsLinesThatAreNone) {
  for (const char* bad : {"loss 1", "[1]", "{\"loss\":1}", "{\"step\":null}",
                          "{\"step\":1e300}"}) {
    const MetricLog log = ParseMetricLog(std::string("{\"step\":1}\n") + bad +
                                         "\n{\"step\":2}\n");
    EXPECT_EQ(log.rows.size(), 2u) << bad;
    EXPECT_EQ(log.bad_lines, 1) << bad;
    EXPECT_EQ(log.first_bad_line, 2) << bad;
  }
}

TEST(MetricLogTest, TakesPythonsNanForNoNumber) {
  const MetricLog log = ParseMetricLog(
      "{\"step\": 1, \"loss\": NaN, \"top\": -Infinity, \"lr\": 0.5}\n");
  EXPECT_THAT(log.rows,
              ElementsAre(MetricRow{.step = 1, .values = {{"lr", 0.5}}}));
}

TEST(MetricLogTest, ThinsALongRun) {
  std::string text;
  for (int step = 0; step <= 200'000; ++step) {
    absl::StrAppend(&text, "{\"step\":", step, "}\n");
  }
  EXPECT_EQ(ParseMetricLog(text).rows.size(), 100'000u);
}

TEST(MetricLogTest, ReadsWhatTheHeadKeeps) {
  v1::MetricsHistory history;
  history.add_names("loss");
  history.add_names("top");
  v1::MetricsHistory::Point& point = *history.add_points();
  point.set_step(7);
  for (const uint32_t name : {1u, 0u, 2u}) {
    point.add_names(name);
    point.add_values(name);
  }
  EXPECT_THAT(
      RowsOf(history),
      ElementsAre(MetricRow{.step = 7, .values = {{"loss", 0}, {"top", 1}}}));
}

}  // namespace
}  // namespace cohort
