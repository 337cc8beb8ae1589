#include "common/line_chart.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"

#include "common/printable_text.h"

namespace cohort {
namespace {

using Point = LineChart::Point;
using Line = LineChart::Line;

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
// Weight of the past in a running mean: about fifty steps.
constexpr double kSmoothing = 0.96;

constexpr std::array<absl::string_view, 6> kColors = {
    "#08519c", "#d94801", "#238b45", "#6a51a3", "#cb181d", "#525252"};
constexpr absl::string_view kFaintColor = "#9ecae1";

constexpr int kTextRows = 16;
constexpr size_t kTextMargin = 10;
constexpr size_t kTextColumnsMin = 20;
constexpr absl::string_view kSigns = "*+ox#@";

// A step between ticks of 1, 2 or 5 times a power of ten, for about `count`.
double TickStep(double range, int count) {
  const double raw = std::max(range, 1e-12) / count;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (raw <= factor * power) return factor * power;
  }
  return 10 * power;
}

// Beyond it differences need not be numbers.
constexpr double kNumberMax = 1e300;

bool IsNumber(const Point& point) {
  return std::abs(point.x) < kNumberMax && std::abs(point.y) < kNumberMax;
}

// What the plot spans, out to whole ticks.
struct Span {
  double x_max = 1;
  double y_min = 0;
  double y_max = 0;
  double y_step = 1;

  explicit Span(const std::vector<Line>& lines) {
    for (const Line& line : lines) {
      for (const Point& point : line.points) {
        if (!IsNumber(point)) continue;
        x_max = std::max(x_max, point.x);
        y_min = std::min(y_min, point.y);
        y_max = std::max(y_max, point.y);
      }
    }
    if (y_max <= y_min) y_max = y_min + 1;
    y_step = TickStep(y_max - y_min, 6);
    y_max = std::ceil(y_max / y_step) * y_step;
    y_min = std::floor(y_min / y_step) * y_step;
  }

  // From 0 to 1.
  double X(double x) const { return std::clamp(x / x_max, 0.0, 1.0); }
  double Y(double y) const {
    return std::clamp((y - y_min) / (y_max - y_min), 0.0, 1.0);
  }
};

double PixelX(const Span& span, double x) {
  return kLeft + kPlotWidth * span.X(x);
}
double PixelY(const Span& span, double y) {
  return kTop + kPlotHeight * (1 - span.Y(y));
}

// A text that may come from a user.
std::string Escaped(absl::string_view text) {
  // XML has no control characters.
  return absl::StrReplaceAll(
      OneLine(text),
      {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

void AddText(std::string& svg, double x, double y, absl::string_view anchor,
             absl::string_view style, absl::string_view text) {
  absl::StrAppendFormat(&svg,
                        "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" "
                        "class=\"%s\">%s</text>\n",
                        x, y, anchor, style, Escaped(text));
}

void AddStroke(std::string& svg, double x1, double y1, double x2, double y2,
               absl::string_view style) {
  absl::StrAppendFormat(&svg,
                        "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" "
                        "y2=\"%.1f\" %s/>\n",
                        x1, y1, x2, y2, style);
}

void AddFrame(std::string& svg, const Span& span, const LineChart& chart) {
  const double bottom = kTop + kPlotHeight;
  // Counted, so that the axis has a tick at 0.
  const auto ticks = std::lround((span.y_max - span.y_min) / span.y_step);
  for (int64_t i = 0; i <= ticks; ++i) {
    const double y = span.y_min + static_cast<double>(i) * span.y_step;
    const double at = PixelY(span, y);
    AddStroke(svg, kLeft, at, kLeft + kPlotWidth, at, "class=\"grid\"");
    AddText(svg, kLeft - 8, at + 4, "end", "tick", absl::StrFormat("%g", y));
  }
  const double x_step = std::max(1.0, TickStep(span.x_max, 8));
  for (double x = 0; x <= span.x_max * 1.0001; x += x_step) {
    const double at = PixelX(span, x);
    AddStroke(svg, at, bottom, at, bottom + 5, "class=\"axis\"");
    AddText(svg, at, bottom + 20, "middle", "tick", absl::StrFormat("%g", x));
  }
  AddStroke(svg, kLeft, kTop, kLeft, bottom, "class=\"axis\"");
  AddStroke(svg, kLeft, bottom, kLeft + kPlotWidth, bottom, "class=\"axis\"");
  AddText(svg, kLeft + kPlotWidth / 2, kHeight - 14, "middle", "label",
          chart.x_name);
  absl::StrAppendFormat(&svg,
                        "<text transform=\"translate(20 %.1f) rotate(-90)\" "
                        "text-anchor=\"middle\" class=\"label\">%s</text>\n",
                        kTop + kPlotHeight / 2, Escaped(chart.y_name));
}

// By line; those that are not faint take the colors in turn.
std::vector<std::string> StrokesOf(const std::vector<Line>& lines) {
  std::vector<std::string> strokes;
  size_t colored = 0;
  for (const Line& line : lines) {
    const absl::string_view color =
        line.is_faint ? kFaintColor : kColors[colored++ % kColors.size()];
    strokes.push_back(absl::StrCat("class=\"", line.is_faint ? "faint" : "line",
                                   "\" stroke=\"", color, "\""));
  }
  return strokes;
}

void AddLine(std::string& svg, const Span& span, const Line& line,
             const std::string& stroke) {
  absl::StrAppend(&svg, "<polyline ", stroke, " points=\"");
  const size_t stride = line.points.size() / kPointsMax + 1;
  for (size_t i = 0; i < line.points.size(); ++i) {
    const Point& point = line.points[i];
    if (i % stride != 0 && i + 1 != line.points.size()) continue;
    if (!IsNumber(point)) continue;
    absl::StrAppendFormat(&svg, "%.1f,%.1f ", PixelX(span, point.x),
                          PixelY(span, point.y));
  }
  absl::StrAppend(&svg, "\"/>\n");
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
.faint { fill: none; stroke-width: 1; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
</style>
)";

// The last of its points that is one.
double LastOf(const Line& line) {
  for (size_t i = line.points.size(); i-- > 0;) {
    if (IsNumber(line.points[i])) return line.points[i].y;
  }
  return std::nan("");
}

}  // namespace

std::string LineChart::ToSvg() const {
  const Span span(lines);
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" "
      "width=\"%g\" height=\"%g\" role=\"img\">\n"
      "<title>%s</title>\n",
      kWidth, kHeight, kWidth, kHeight, Escaped(title));
  absl::StrAppend(&svg, kStyle,
                  "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n");
  AddText(svg, kLeft, 32, "start", "title", title);
  AddFrame(svg, span, *this);
  const std::vector<std::string> strokes = StrokesOf(lines);
  for (size_t i = 0; i < lines.size(); ++i) {
    AddLine(svg, span, lines[i], strokes[i]);
  }
  for (const Note& note : notes) {
    const double x = PixelX(span, note.x);
    AddStroke(svg, x, kTop, x, kTop + kPlotHeight, "class=\"epoch\"");
    AddText(svg, x - 4, kTop + 14, "end", "note", note.text);
  }
  // Below each other, at the right.
  for (size_t i = 0; i < lines.size(); ++i) {
    const double y = kTop + 32 + 18 * static_cast<double>(i);
    const double x = kLeft + kPlotWidth - 150;
    AddStroke(svg, x, y - 4, x + 22, y - 4, strokes[i]);
    AddText(svg, x + 28, y, "start", "tick", lines[i].name);
  }
  absl::StrAppend(&svg, "</svg>\n");
  return svg;
}

std::string LineChart::ToText(size_t columns) const {
  const Span span(lines);
  const size_t width = std::max(columns, kTextColumnsMin) - kTextMargin;
  std::vector<std::string> rows(kTextRows, std::string(width, ' '));
  for (size_t i = 0; i < lines.size(); ++i) {
    for (const Point& point : lines[i].points) {
      if (!IsNumber(point)) continue;
      const auto x = static_cast<size_t>(
          std::lround(span.X(point.x) * static_cast<double>(width - 1)));
      const auto y = static_cast<size_t>(
          std::lround((1 - span.Y(point.y)) * (kTextRows - 1)));
      rows[y][x] = kSigns[i % kSigns.size()];
    }
  }
  std::string text;
  for (int row = 0; row < kTextRows; ++row) {
    const double share = 1 - static_cast<double>(row) / (kTextRows - 1);
    const std::string label =
        row % 5 == 0
            ? absl::StrFormat("%8.4g",
                              span.y_min + share * (span.y_max - span.y_min))
            : std::string(8, ' ');
    std::string line = absl::StrCat(label, " |", rows[row]);
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  }
  absl::StrAppend(&text, std::string(9, ' '), "+", std::string(width, '-'),
                  "\n");
  const std::string last = absl::StrFormat("%g", span.x_max);
  // "0", as far to the right as there is room the last one, and what it is.
  const std::string right = last.size() + x_name.size() + 2 < width
                                ? absl::StrCat(last, " ", OneLine(x_name))
                                : last;
  absl::StrAppend(&text, std::string(kTextMargin, ' '), "0",
                  std::string(width - std::min(width, right.size() + 1), ' '),
                  right, "\n");
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string entry = absl::StrFormat(
        "%c %s: %s %.6g", kSigns[i % kSigns.size()], OneLine(lines[i].name),
        OneLine(y_name), LastOf(lines[i]));
    absl::StrAppend(&text, entry.substr(0, width + kTextMargin), "\n");
  }
  return text;
}

std::vector<Point> RunningMean(std::vector<Point> points) {
  double sum = 0;
  double weight = 0;
  for (Point& point : points) {
    if (!IsNumber(point)) continue;
    sum = kSmoothing * sum + (1 - kSmoothing) * point.y;
    weight = kSmoothing * weight + (1 - kSmoothing);
    point.y = sum / weight;
  }
  return points;
}

}  // namespace cohort
