#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"

#include "client/metric_log.h"

namespace cohort::cli {

// An event file as TensorBoard reads it: TFRecords (length, masked CRC-32C,
// bytes) of messages Event{wall_time, step, summary}, one a row, each metric a
// scalar.  Rows have no times: they get them evenly from `begin` on, over
// `ran`.
std::string TensorBoardEvents(const std::vector<MetricRow>& rows,
                              absl::Time begin, absl::Duration ran);

}  // namespace cohort::cli
