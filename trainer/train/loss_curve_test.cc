#include "trainer/train/loss_curve.h"

#include <cmath>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort::train {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

History Falling(int steps) {
  History history;
  for (int i = 0; i < steps; ++i) {
    history.Add(i + 1, i / 150 + 1, {{"loss", 2.3 * std::exp(-i / 100.0)}});
  }
  return history;
}

TEST(LossCurveTest, DrawsAxesCurveAndNotes) {
  History history = Falling(300);
  history.Add(300, 2, {{"accuracy", 98.25}});
  const std::string svg =
      DrawLossCurve(history, {.title = "A & B", .note = "accuracy"});
  EXPECT_THAT(svg, ::testing::StartsWith("<svg xmlns"));
  EXPECT_THAT(svg, ::testing::EndsWith("</svg>\n"));
  EXPECT_THAT(svg, HasSubstr("A &amp; B: training loss"));
  EXPECT_THAT(svg, HasSubstr("epoch 2: 98.25"));
  EXPECT_THAT(svg, HasSubstr(">2.5</text>"));
  EXPECT_EQ(svg,
            DrawLossCurve(history, {.title = "A & B", .note = "accuracy"}));
}

TEST(LossCurveTest, HoldsWhateverTheLossesAre) {
  History history = Falling(3);
  history.Add(4, 1, {{"loss", std::numeric_limits<double>::quiet_NaN()}});
  history.Add(5, 1, {{"loss", std::numeric_limits<double>::infinity()}});
  EXPECT_THAT(DrawLossCurve(history, {}), Not(HasSubstr("nan")));
  EXPECT_THAT(DrawLossCurve(history, {}), Not(HasSubstr("inf")));
  EXPECT_THAT(DrawLossCurve(History(), {}), HasSubstr("</svg>"));
}

TEST(LossCurveTest, StaysSmallForLongRuns) {
  EXPECT_LT(DrawLossCurve(Falling(20000), {}).size(), size_t{64} << 10);
}

TEST(LossCurveTest, NamesAPathThatCannotBeWritten) {
  TempDir directory;
  COHORT_EXPECT_OK(WriteLossCurve(Falling(5), {}, directory.File("loss.svg")));
  EXPECT_THAT(
      WriteLossCurve(Falling(5), {}, directory.File("none/loss.svg")).message(),
      HasSubstr("none/loss.svg"));
}

}  // namespace
}  // namespace cohort::train
