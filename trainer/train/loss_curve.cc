#include "trainer/train/loss_curve.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"

#include "common/file.h"

namespace cohort::train {
namespace {

constexpr double kWidth = 860;
constexpr double kHeight = 460;
constexpr double kLeft = 70;
constexpr double kRight = 30;
constexpr double kTop = 56;
constexpr double kBottom = 62;
constexpr double kPlotWidth = kWidth - kLeft - kRight;
constexpr double kPlotHeight = kHeight - kTop - kBottom;
// More points than pixels only make the file larger.
constexpr size_t kPointsMax = 1600;
// Weight of the past in the running mean: about fifty steps.
constexpr double kSmoothing = 0.96;

// A step between ticks of 1, 2 or 5 times a power of ten, for about `count`.
double TickStep(double range, int count) {
  const double raw = std::max(range, 1e-12) / count;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (raw <= factor * power) return factor * power;
  }
  return 10 * power;
}

// Steps and losses on the plot's pixels.
class Axes {
 public:
  Axes(double step_max, double loss_max)
      : step_max_(std::max(step_max, 1.0)), loss_max_(loss_max) {}

  double X(double step) const { return kLeft + kPlotWidth * step / step_max_; }
  double Y(double loss) const {
    const double bounded = std::clamp(loss, 0.0, loss_max_);
    return kTop + kPlotHeight * (1 - bounded / loss_max_);
  }
  double step_max() const { return step_max_; }
  double loss_max() const { return loss_max_; }

 private:
  double step_max_;
  double loss_max_;
};

void Text(std::string& svg, double x, double y, absl::string_view anchor,
          absl::string_view style, absl::string_view text) {
  absl::StrAppendFormat(&svg,
                        "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" "
                        "class=\"%s\">%s</text>\n",
                        x, y, anchor, style, text);
}

void Line(std::string& svg, double x1, double y1, double x2, double y2,
          absl::string_view style) {
  absl::StrAppendFormat(&svg,
                        "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" "
                        "y2=\"%.1f\" class=\"%s\"/>\n",
                        x1, y1, x2, y2, style);
}

// A text that may come from a user.
std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

struct Point {
  double step = 0;
  double value = 0;
};

void DrawFrame(std::string& svg, const Axes& axes, absl::string_view name) {
  const double loss_step = TickStep(axes.loss_max(), 6);
  for (double loss = 0; loss <= axes.loss_max() * 1.0001; loss += loss_step) {
    Line(svg, kLeft, axes.Y(loss), kLeft + kPlotWidth, axes.Y(loss), "grid");
    Text(svg, kLeft - 8, axes.Y(loss) + 4, "end", "tick",
         absl::StrFormat("%g", loss));
  }
  const double step_step = std::max(1.0, TickStep(axes.step_max(), 8));
  for (double step = 0; step <= axes.step_max() * 1.0001; step += step_step) {
    const double bottom = kTop + kPlotHeight;
    Line(svg, axes.X(step), bottom, axes.X(step), bottom + 5, "axis");
    Text(svg, axes.X(step), bottom + 20, "middle", "tick",
         absl::StrFormat("%g", step));
  }
  Line(svg, kLeft, kTop, kLeft, kTop + kPlotHeight, "axis");
  Line(svg, kLeft, kTop + kPlotHeight, kLeft + kPlotWidth, kTop + kPlotHeight,
       "axis");
  Text(svg, kLeft + kPlotWidth / 2, kHeight - 14, "middle", "label", "step");
  absl::StrAppendFormat(&svg,
                        "<text transform=\"translate(20 %.1f) rotate(-90)\" "
                        "text-anchor=\"middle\" class=\"label\">"
                        "%s</text>\n",
                        kTop + kPlotHeight / 2, name);
}

void DrawNotes(std::string& svg, const Axes& axes, const History& history,
               const std::string& name) {
  for (size_t i = 0; i < history.size(); ++i) {
    const HistoryRow row = history.Row(i);
    const auto note = row.metrics.find(name);
    if (note == row.metrics.end()) continue;
    const double x = axes.X(static_cast<double>(row.step));
    Line(svg, x, kTop, x, kTop + kPlotHeight, "epoch");
    Text(svg, x - 4, kTop + 14, "end", "note",
         absl::StrFormat("epoch %d: %.2f", row.epoch, note->second));
  }
}

void DrawLine(std::string& svg, const Axes& axes,
              const std::vector<Point>& points, absl::string_view style) {
  absl::StrAppend(&svg, "<polyline class=\"", style, "\" points=\"");
  const size_t stride = points.size() / kPointsMax + 1;
  for (size_t i = 0; i < points.size(); ++i) {
    if (i % stride != 0 && i + 1 != points.size()) continue;
    absl::StrAppendFormat(&svg, "%.1f,%.1f ", axes.X(points[i].step),
                          axes.Y(points[i].value));
  }
  absl::StrAppend(&svg, "\"/>\n");
}

// An exponential mean that does not lean on its first value.
std::vector<Point> RunningMean(std::vector<Point> points) {
  double sum = 0;
  double weight = 0;
  for (Point& point : points) {
    sum = kSmoothing * sum + (1 - kSmoothing) * point.value;
    weight = kSmoothing * weight + (1 - kSmoothing);
    point.value = sum / weight;
  }
  return points;
}

// Those that are numbers.
std::vector<Point> PointsOf(const History& history, const std::string& name) {
  std::vector<Point> points;
  for (size_t i = 0; i < history.size(); ++i) {
    const HistoryRow row = history.Row(i);
    const auto value = row.metrics.find(name);
    if (value == row.metrics.end() || !std::isfinite(value->second)) continue;
    points.push_back({static_cast<double>(row.step), value->second});
  }
  return points;
}

double ValueMax(const std::vector<Point>& points) {
  double top = 0;
  for (const Point& point : points) top = std::max(top, point.value);
  if (top <= 0) return 1;
  const double step = TickStep(top, 6);
  return std::ceil(top / step) * step;
}

constexpr absl::string_view kStyle = R"(<style>
text { font-family: system-ui, sans-serif; fill: #333; }
.title { font-size: 17px; font-weight: 600; }
.label { font-size: 13px; }
.tick { font-size: 12px; fill: #555; }
.note { font-size: 12px; fill: #0b6e4f; }
.grid { stroke: #e6e6e6; }
.axis { stroke: #777; }
.epoch { stroke: #0b6e4f; stroke-dasharray: 4 4; opacity: 0.6; }
.raw { fill: none; stroke: #9ecae1; stroke-width: 1; }
.mean { fill: none; stroke: #08519c; stroke-width: 2;
        stroke-linejoin: round; }
</style>
)";

}  // namespace

std::string DrawLossCurve(const History& history, const CurveOptions& options) {
  const std::vector<Point> points = PointsOf(history, options.metric);
  const Axes axes(points.empty() ? 0 : points.back().step, ValueMax(points));
  const std::string metric = Escaped(options.metric);
  const std::string title =
      absl::StrCat(Escaped(options.title), options.title.empty() ? "" : ": ",
                   "training ", metric);
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" "
      "width=\"%g\" height=\"%g\" role=\"img\">\n"
      "<title>%s</title>\n",
      kWidth, kHeight, kWidth, kHeight, title);
  absl::StrAppend(&svg, kStyle,
                  "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n");
  Text(svg, kLeft, 32, "start", "title", title);
  DrawFrame(svg, axes, metric);
  DrawLine(svg, axes, points, "raw");
  DrawLine(svg, axes, RunningMean(points), "mean");
  DrawNotes(svg, axes, history, options.note);
  const double legend = kLeft + kPlotWidth - 210;
  Line(svg, legend, 28, legend + 22, 28, "raw");
  Text(svg, legend + 28, 32, "start", "tick", "each step");
  Line(svg, legend + 100, 28, legend + 122, 28, "mean");
  Text(svg, legend + 128, 32, "start", "tick", "running mean");
  absl::StrAppend(&svg, "</svg>\n");
  return svg;
}

absl::Status WriteLossCurve(const History& history, const CurveOptions& options,
                            const std::string& path) {
  return WriteFileAtomically(path, DrawLossCurve(history, options), 0644);
}

}  // namespace cohort::train
