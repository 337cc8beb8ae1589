#include "common/line_chart.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

LineChart Falling(int steps) {
  LineChart chart{.title = "A & B", .x_name = "step", .y_name = "loss"};
  LineChart::Line line{.name = "one"};
  for (int i = 0; i < steps; ++i) {
    line.points.push_back({i + 1.0, 2.3 * std::exp(-i / 100.0)});
  }
  chart.lines.push_back(line);
  return chart;
}

TEST(LineChartTest, DrawsAxesLinesAndNotes) {
  LineChart chart = Falling(300);
  chart.notes.push_back({150, "epoch 1: 98.25"});
  const std::string svg = chart.ToSvg();
  EXPECT_THAT(svg, StartsWith("<svg xmlns"));
  EXPECT_THAT(svg, EndsWith("</svg>\n"));
  EXPECT_THAT(svg, HasSubstr("A &amp; B"));
  EXPECT_THAT(svg, HasSubstr("epoch 1: 98.25"));
  EXPECT_THAT(svg, HasSubstr(">2.5</text>"));
  EXPECT_EQ(svg, chart.ToSvg());
}

TEST(LineChartTest, HoldsWhateverTheNumbersAre) {
  LineChart chart = Falling(3);
  chart.lines[0].points.push_back(
      {4, std::numeric_limits<double>::quiet_NaN()});
  chart.lines[0].points.push_back({5, std::numeric_limits<double>::infinity()});
  chart.lines[0].points.push_back({6, -1e9});
  chart.lines[0].points.push_back({7, 1.7e308});
  chart.lines[0].points.push_back({8, -1.7e308});
  chart.y_name = "red\x1b[31m\n";
  EXPECT_THAT(chart.ToSvg(), Not(HasSubstr("nan")));
  EXPECT_THAT(chart.ToSvg(), Not(HasSubstr("inf")));
  EXPECT_THAT(chart.ToSvg(), Not(HasSubstr("\x1b")));
  EXPECT_THAT(chart.ToText(80), Not(HasSubstr("nan")));
  EXPECT_THAT(LineChart{}.ToSvg(), HasSubstr("</svg>"));
  EXPECT_THAT(LineChart{}.ToText(80), HasSubstr("|"));
}

TEST(LineChartTest, StaysSmallForManyPoints) {
  EXPECT_LT(Falling(20'000).ToSvg().size(), size_t{64} << 10);
}

TEST(LineChartTest, DrawsForATerminal) {
  for (const size_t columns : {size_t{5}, size_t{40}, size_t{120}}) {
    const std::string text = Falling(300).ToText(columns);
    EXPECT_THAT(text, HasSubstr("     2.5 |"));
    EXPECT_THAT(text, HasSubstr("* one: loss"));
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      EXPECT_LE(line.size(), std::max<size_t>(columns, 20)) << line;
    }
  }
}

TEST(LineChartTest, AMeanDoesNotLeanOnItsFirstPoint) {
  const auto mean = RunningMean({{1, 4}, {2, 2}, {3, 2}});
  EXPECT_DOUBLE_EQ(mean[0].y, 4);
  EXPECT_NEAR(mean[2].y, 2.64, 0.01);
}

}  // namespace
}  // namespace cohort
