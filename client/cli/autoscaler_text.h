#pragma once

#include <string>

#include "absl/time/time.h"

#include "client/cli/table.h"
#include "client/node.h"

// Node types, instances and wanted capacity as people read them.
namespace cohort::cli {

// Everything that the autoscaler says of itself; ages as of `now`.
std::string AutoscalingText(const Autoscaling& autoscaling, absl::Time now,
                            const TableView& view);
// A line a request.
std::string CapacityTable(const Autoscaling& autoscaling, absl::Time now,
                          const TableView& view);

}  // namespace cohort::cli
