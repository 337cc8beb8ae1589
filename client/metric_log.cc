#include "client/metric_log.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"

#include "common/status_macros.h"

namespace cohort {
namespace {

constexpr size_t kBytesMax = size_t{256} << 20;
constexpr size_t kRowsMax = 1'000'000;

}  // namespace

absl::StatusOr<std::vector<MetricRow>> ParseMetricLog(absl::string_view text) {
  std::map<int64_t, MetricRow> rows;
  text = text.substr(0, text.rfind('\n') + 1);  // npos + 1 is 0
  int64_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (line.empty()) continue;
    const auto json = nlohmann::json::parse(line, nullptr, false);
    const bool has_step =
        json.is_object() && json.contains("step") && json["step"].is_number();
    if (!has_step) {
      return absl::DataLossError(
          absl::StrCat("line ", number, " of ", kMetricLogFile,
                       " is no JSON object with a step"));
    }
    const auto step = json["step"].get<int64_t>();
    MetricRow& row = rows[step];
    row.step = step;
    for (const auto& [name, value] : json.items()) {
      if (name != "step" && value.is_number()) row.values[name] = value;
    }
    if (rows.size() > kRowsMax) {
      return absl::ResourceExhaustedError(
          absl::StrCat(kMetricLogFile, " has more than ", kRowsMax, " steps"));
    }
  }
  std::vector<MetricRow> sorted;
  sorted.reserve(rows.size());
  for (auto& [step, row] : rows) sorted.push_back(std::move(row));
  return sorted;
}

absl::StatusOr<std::vector<MetricRow>> ReadMetricLog(const Cluster& cluster,
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
  return absl::NotFoundError(absl::StrCat(
      "job ", job.ToText(), " has no metrics: no rank wrote ", kMetricLogFile,
      " to COHORT_STORAGE_DIR (a line {\"step\": 1, \"loss\": 0.5} a step)"));
}

}  // namespace cohort
