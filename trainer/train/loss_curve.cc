#include "trainer/train/loss_curve.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/file.h"
#include "common/line_chart.h"

namespace cohort::train {

std::string DrawLossCurve(const History& history, const CurveOptions& options) {
  LineChart chart{
      .title = absl::StrCat(options.title, options.title.empty() ? "" : ": ",
                            "training ", options.metric),
      .x_name = "step",
      .y_name = options.metric};
  std::vector<LineChart::Point> points;
  for (const HistoryRow& row : history.Rows()) {
    const auto x = static_cast<double>(row.step);
    if (const auto value = row.metrics.find(options.metric);
        value != row.metrics.end()) {
      points.push_back({x, value->second});
    }
    if (const auto note = row.metrics.find(options.note);
        note != row.metrics.end()) {
      chart.notes.push_back(
          {x, absl::StrFormat("epoch %d: %.2f", row.epoch, note->second)});
    }
  }
  chart.lines = {{.name = "each step", .points = points, .is_faint = true},
                 {.name = "running mean", .points = RunningMean(points)}};
  return chart.ToSvg();
}

absl::Status WriteLossCurve(const History& history, const CurveOptions& options,
                            const std::string& path) {
  return WriteFileAtomically(path, DrawLossCurve(history, options), 0644);
}

}  // namespace cohort::train
