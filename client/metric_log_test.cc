#include "client/metric_log.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"

namespace cohort {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(MetricLogTest, ReadsALineAStep) {
  const auto rows = ParseMetricLog(
      "{\"step\":2,\"loss\":0.25,\"note\":\"late\"}\n"
      "\n"
      "{\"step\":1,\"loss\":0.5}\n"
      "{\"step\":2,\"accuracy\":90,\"loss\":0.125}\n");
  COHORT_ASSERT_OK(rows);
  EXPECT_THAT(
      *rows,
      ElementsAre(
          MetricRow{.step = 1, .values = {{"loss", 0.5}}},
          MetricRow{.step = 2, .values = {{"accuracy", 90}, {"loss", 0.125}}}));
}

TEST(MetricLogTest, LeavesOutALineThatIsBeingWritten) {
  const auto rows = ParseMetricLog("{\"step\":1,\"loss\":1}\n{\"step\":2,\"l");
  COHORT_ASSERT_OK(rows);
  EXPECT_EQ(rows->size(), 1);
  EXPECT_THAT(*ParseMetricLog("{\"step\":1"), IsEmpty());
  EXPECT_THAT(*ParseMetricLog(""), IsEmpty());
}

TEST(MetricLogTest, NamesALineThatIsNone) {
  for (const char* bad : {"loss 1", "[1]", "{\"loss\":1}", "{\"step\":null}"}) {
    EXPECT_THAT(
        ParseMetricLog(std::string("{\"step\":1}\n") + bad + "\n").status(),
        StatusIs(absl::StatusCode::kDataLoss, HasSubstr("line 2")))
        << bad;
  }
}

}  // namespace
}  // namespace cohort
