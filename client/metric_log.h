#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "client/cluster.h"
#include "common/job_id.h"

namespace cohort {

// A job's metrics of one step.
struct MetricRow {
  int64_t step = 0;
  std::map<std::string, double> values;  // without the step

  bool operator==(const MetricRow&) const = default;
};

// The file of a job's run directory that its metrics are in: a JSON object a
// line, {"step": 12, "loss": 0.25, ...}.  `Fit` writes it, and any program may.
inline constexpr char kMetricLogFile[] = "metrics.jsonl";

struct MetricLog {
  std::vector<MetricRow> rows;  // by step
  // Lines that are not JSON objects with a step, and the first of them.
  int64_t bad_lines = 0;
  int64_t first_bad_line = 0;
  // Why the file cannot be read, where the rows are those that the head keeps:
  // not every step has one.
  absl::Status file_error;
};

// Reads such a file.  Of two lines with one step the later counts, metric by
// metric.  What is not a number is left out, such as Python's NaN, and a last
// line without an end: it is being written.  Beyond 200,000 steps every second
// one is dropped.
MetricLog ParseMetricLog(absl::string_view text);

// Rows of what the head keeps of a job's reports.
std::vector<MetricRow> RowsOf(const v1::MetricsHistory& history);

// The job's, from the node that has it, or else what the head keeps of its
// reports.  Where there is neither: NotFound when its ranks wrote none;
// ResourceExhausted when it is larger than 256 MiB; errors of Cluster::Files
// and Cluster::ReadFile.
absl::StatusOr<MetricLog> ReadMetricLog(const Cluster& cluster,
                                        const JobId& job);

}  // namespace cohort
