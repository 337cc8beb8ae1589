#include "trainer/train/fit_report.h"

#include "gtest/gtest.h"

namespace cohort::train {
namespace {

TEST(ProgressTextTest, SaysWhatTheLoopReports) {
  EXPECT_EQ(ProgressText(
                R"({"epoch":1,"step":12,"loss":0.25,"samples_per_s":1300.4,
                    "progress":0.5,"text":"x"})"),
            "step 12, loss 0.25, 1300 samples/s");
  EXPECT_EQ(ProgressText(""), "");
  EXPECT_EQ(ProgressText("[1"), "");
}

}  // namespace
}  // namespace cohort::train
