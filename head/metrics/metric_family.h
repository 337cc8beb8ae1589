#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

// Metrics as values; metrics_page.h makes text of them.
namespace cohort::head {

// How often something took how long, in buckets of fixed bounds.  A value.
class Histogram {
 public:
  // 100 us to 10 s, three a decade: from a memory-only answer to a dead disk.
  static absl::Span<const double> Bounds();  // seconds

  Histogram() : counts_(Bounds().size() + 1) {}

  void Add(absl::Duration took);

  // At or below each bound, then all: never decreasing.
  std::vector<uint64_t> Cumulative() const;
  uint64_t count() const { return count_; }
  double sum_seconds() const { return sum_seconds_; }

 private:
  std::vector<uint64_t> counts_;
  uint64_t count_ = 0;
  double sum_seconds_ = 0;
};

enum class MetricType { kGauge, kCounter, kHistogram };

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

struct MetricSample {
  MetricLabels labels;
  double value = 0;     // of gauges and counters
  Histogram histogram;  // of histograms
};

// REQUIRES: names of counters end in _total, and no others do; label names are
// lower_snake_case, but where another exporter's names are kept
// (device_metrics.h); no two samples have the same labels.
struct MetricFamily {
  std::string name;
  std::string help;  // one line
  MetricType type = MetricType::kGauge;
  std::vector<MetricSample> samples;

  // Adds a sample.
  void Add(MetricLabels labels, double value) {
    samples.push_back({.labels = std::move(labels), .value = value});
  }
};

MetricFamily Gauge(absl::string_view name, absl::string_view help);
MetricFamily Gauge(absl::string_view name, absl::string_view help,
                   double value);
MetricFamily Counter(absl::string_view name, absl::string_view help);
MetricFamily Counter(absl::string_view name, absl::string_view help,
                     double value);

}  // namespace cohort::head
