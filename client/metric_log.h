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

// Reads such a file's rows, by step; of two with one step the later counts,
// metric by metric.  What is no number is left out, a last line without an end
// too: it is being written.  DataLoss names a line that is no object or has no
// step; ResourceExhausted beyond 1,000,000 rows.
absl::StatusOr<std::vector<MetricRow>> ParseMetricLog(absl::string_view text);

// The job's, from the node that has it.  NotFound when its ranks wrote none;
// ResourceExhausted when it is larger than 256 MiB; errors of Cluster::Files
// and Cluster::ReadFile.
absl::StatusOr<std::vector<MetricRow>> ReadMetricLog(const Cluster& cluster,
                                                     const JobId& job);

}  // namespace cohort
