#include "client/metric_log.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"

#include "common/status_macros.h"

namespace cohort {
namespace {

constexpr size_t kBytesMax = size_t{256} << 20;
constexpr size_t kRowsMax = 200'000;
// Beyond it not every whole number is a double.
constexpr double kStepMax = 9e15;

// One line; none when it is not an object with a step.
std::optional<MetricRow> ParseRow(absl::string_view line) {
  auto json = nlohmann::json::parse(line, nullptr, false);
  if (json.is_discarded()) {
    // As Python's json writes what is not a number.
    json = nlohmann::json::parse(
        absl::StrReplaceAll(line, {{": NaN", ":null"},
                                   {":NaN", ":null"},
                                   {": Infinity", ":null"},
                                   {":Infinity", ":null"},
                                   {": -Infinity", ":null"},
                                   {":-Infinity", ":null"}}),
        nullptr, false);
  }
  if (!json.is_object() || !json.contains("step") ||
      !json["step"].is_number() ||
      !(std::abs(json["step"].get<double>()) < kStepMax)) {
    return std::nullopt;
  }
  MetricRow row{.step = json["step"].get<int64_t>()};
  for (const auto& [name, value] : json.items()) {
    if (name != "step" && value.is_number()) row.values[name] = value;
  }
  return row;
}

void DropEverySecond(std::map<int64_t, MetricRow>& rows) {
  bool is_kept = false;
  std::erase_if(rows, [&](const auto&) { return is_kept = !is_kept; });
}

absl::StatusOr<MetricLog> ReadLogFile(const Cluster& cluster,
                                      const JobId& job) {
  COHORT_ASSIGN_OR_RETURN(const JobFiles files, cluster.Files(job));
  for (const JobFile& file : files.files) {
    if (file.file.path() != kMetricLogFile) continue;
    std::string text;
    COHORT_RETURN_IF_ERROR(cluster.ReadFile(
        job, file, [&](absl::string_view bytes) -> absl::Status {
          if (text.size() + bytes.size() > kBytesMax) {
            return absl::ResourceExhaustedError(absl::StrCat(
                kMetricLogFile, " is larger than ", kBytesMax, " bytes"));
          }
          text.append(bytes.data(), bytes.size());
          return absl::OkStatus();
        }));
    return ParseMetricLog(text);
  }
  if (!files.nodes_away.empty()) {
    return absl::UnavailableError(absl::StrCat(
        "node ", files.nodes_away[0], " is away, and what it has of job ",
        job.ToText(), " with it"));
  }
  if (!files.nodes_gone.empty()) {
    return absl::NotFoundError(GoneText(files));
  }
  return absl::NotFoundError(absl::StrCat(
      "job ", job.ToText(), " has no metrics: no rank wrote ", kMetricLogFile,
      " to COHORT_STORAGE_DIR (a line {\"step\": 1, \"loss\": 0.5} a step)"));
}

}  // namespace

MetricLog ParseMetricLog(absl::string_view text) {
  MetricLog log;
  std::map<int64_t, MetricRow> rows;
  text = text.substr(0, text.rfind('\n') + 1);  // npos + 1 is 0
  int64_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (line.empty()) continue;
    std::optional<MetricRow> row = ParseRow(line);
    if (!row.has_value()) {
      if (log.bad_lines++ == 0) log.first_bad_line = number;
      continue;
    }
    MetricRow& known = rows[row->step];
    known.step = row->step;
    row->values.merge(known.values);
    known.values = std::move(row->values);
    if (rows.size() > kRowsMax) DropEverySecond(rows);
  }
  log.rows.reserve(rows.size());
  for (auto& [step, row] : rows) log.rows.push_back(std::move(row));
  return log;
}

std::vector<MetricRow> RowsOf(const v1::MetricsHistory& history) {
  std::vector<MetricRow> rows;
  for (const v1::MetricsHistory::Point& point : history.points()) {
    MetricRow& row = rows.emplace_back(MetricRow{.step = point.step()});
    const int size = std::min(point.names_size(), point.values_size());
    for (int i = 0; i < size; ++i) {
      if (point.names(i) >= static_cast<uint32_t>(history.names_size())) {
        continue;
      }
      row.values[history.names(static_cast<int>(point.names(i)))] =
          point.values(i);
    }
  }
  return rows;
}

absl::StatusOr<MetricLog> ReadMetricLog(const Cluster& cluster,
                                        const JobId& job) {
  absl::StatusOr<MetricLog> log = ReadLogFile(cluster, job);
  if (log.ok()) return log;
  const absl::StatusOr<v1::MetricsHistory> kept = cluster.MetricsHistory(job);
  if (!kept.ok() || kept->points().empty()) return log;
  return MetricLog{.rows = RowsOf(*kept), .file_error = log.status()};
}

}  // namespace cohort
