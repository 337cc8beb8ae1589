#include "head/metrics/metric_family.h"

#include <algorithm>
#include <iterator>

namespace cohort::head {
namespace {

constexpr double kBounds[] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005,
                              0.01,   0.025,   0.05,   0.1,   0.25,   0.5,
                              1.0,    2.5,     5.0,    10.0};

MetricFamily Family(MetricType type, absl::string_view name,
                    absl::string_view help) {
  MetricFamily family;
  family.name = std::string(name);
  family.help = std::string(help);
  family.type = type;
  return family;
}

}  // namespace

absl::Span<const double> Histogram::Bounds() { return kBounds; }

void Histogram::Add(absl::Duration took) {
  const double seconds = std::max(0.0, absl::ToDoubleSeconds(took));
  const auto bound =
      std::lower_bound(std::begin(kBounds), std::end(kBounds), seconds);
  ++counts_[static_cast<size_t>(bound - std::begin(kBounds))];
  ++count_;
  sum_seconds_ += seconds;
}

std::vector<uint64_t> Histogram::Cumulative() const {
  std::vector<uint64_t> cumulative = counts_;
  for (size_t i = 1; i < cumulative.size(); ++i) {
    cumulative[i] += cumulative[i - 1];
  }
  return cumulative;
}

MetricFamily Gauge(absl::string_view name, absl::string_view help) {
  return Family(MetricType::kGauge, name, help);
}

MetricFamily Gauge(absl::string_view name, absl::string_view help,
                   double value) {
  MetricFamily family = Gauge(name, help);
  family.Add({}, value);
  return family;
}

MetricFamily Counter(absl::string_view name, absl::string_view help) {
  return Family(MetricType::kCounter, name, help);
}

MetricFamily Counter(absl::string_view name, absl::string_view help,
                     double value) {
  MetricFamily family = Counter(name, help);
  family.Add({}, value);
  return family;
}

}  // namespace cohort::head
