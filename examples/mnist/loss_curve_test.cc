#include "examples/mnist/loss_curve.h"

#include <cmath>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort::mnist {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

LossHistory Falling(int steps) {
  LossHistory history;
  for (int i = 0; i < steps; ++i) {
    history.losses.push_back(2.3 * std::exp(-i / 100.0));
  }
  return history;
}

TEST(LossCurveTest, DrawsAxesCurveAndEpochs) {
  LossHistory history = Falling(300);
  history.epoch_ends = {150, 300};
  history.accuracies = {97.5, 98.25};
  const std::string svg = DrawLossCurve(history);
  EXPECT_THAT(svg, ::testing::StartsWith("<svg xmlns"));
  EXPECT_THAT(svg, ::testing::EndsWith("</svg>\n"));
  EXPECT_THAT(svg, HasSubstr("cross-entropy loss"));
  EXPECT_THAT(svg, HasSubstr("epoch 2: 98.25 %"));
  EXPECT_THAT(svg, HasSubstr(">2.5</text>"));
  EXPECT_EQ(svg, DrawLossCurve(history));
}

TEST(LossCurveTest, HoldsWhateverTheLossesAre) {
  LossHistory history = Falling(3);
  history.losses.push_back(std::numeric_limits<double>::quiet_NaN());
  history.losses.push_back(std::numeric_limits<double>::infinity());
  EXPECT_THAT(DrawLossCurve(history), Not(HasSubstr("nan")));
  EXPECT_THAT(DrawLossCurve(history), Not(HasSubstr("inf")));
  EXPECT_THAT(DrawLossCurve({}), HasSubstr("</svg>"));
  EXPECT_THAT(DrawLossCurve({.losses = {0.0}}), Not(HasSubstr("nan")));
}

TEST(LossCurveTest, StaysSmallForLongRuns) {
  EXPECT_LT(DrawLossCurve(Falling(200000)).size(), size_t{64} << 10);
}

TEST(LossCurveTest, NamesAPathThatCannotBeWritten) {
  TempDir directory;
  COHORT_EXPECT_OK(WriteLossCurve(Falling(5), directory.File("loss.svg")));
  EXPECT_THAT(
      WriteLossCurve(Falling(5), directory.File("none/loss.svg")).message(),
      HasSubstr("none/loss.svg"));
}

}  // namespace
}  // namespace cohort::mnist
