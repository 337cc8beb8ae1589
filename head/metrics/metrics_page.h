#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "head/metrics/metric_family.h"

// Metrics as the text that Prometheus reads.
//
// prometheus-cpp writes it; its header is seen by metrics_page.cc alone.
namespace cohort::head {

enum class MetricsFormat {
  kText,         // Prometheus' text format 0.0.4
  kOpenMetrics,  // OpenMetrics 1.0.0
};

// What a client that sends this header field gets: OpenMetrics if it asks for
// it at least as much as for anything else.
MetricsFormat FormatFor(absl::string_view accept);
absl::string_view ContentTypeOf(MetricsFormat format);

// MP-1: any text is fit for a label's value: it is escaped.
// REQUIRES: helps without double quotes, which the formats read differently.
std::string RenderMetrics(const std::vector<MetricFamily>& families,
                          MetricsFormat format);

}  // namespace cohort::head
