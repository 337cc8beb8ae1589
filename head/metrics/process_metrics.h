#pragma once

#include <string>
#include <vector>

#include "head/metrics/metric_family.h"

namespace cohort::head {

// What /proc says of this process, by the names that Prometheus' own clients
// use; what it does not say is left out.  Reads files: not on a strand.
std::vector<MetricFamily> ProcessMetrics();

// The size of the files directly in `directory`, which is the store's.
std::vector<MetricFamily> StoreSizeMetrics(const std::string& directory);

}  // namespace cohort::head
