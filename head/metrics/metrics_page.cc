#include "head/metrics/metrics_page.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "prometheus/metric_family.h"
#include "prometheus/text_serializer.h"

namespace cohort::head {
namespace {

// UTF-8 is all that both formats take.
std::string AsUtf8(absl::string_view text) {
  std::string clean;
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80                    ? 1
                          : lead >= 0xC2 && lead < 0xE0  ? 2
                          : lead >= 0xE0 && lead < 0xF0  ? 3
                          : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                         : 0;
    const absl::string_view rest =
        length > 1 ? text.substr(i + 1, length - 1) : absl::string_view();
    const bool whole = length > 0 &&
                       rest.size() == std::max<size_t>(length, 1) - 1 &&
                       std::all_of(rest.begin(), rest.end(), [](char c) {
                         return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
                       });
    if (whole) {
      clean.append(text.data() + i, length);
      i += length;
    } else {
      clean.push_back('?');
      ++i;
    }
  }
  return clean;
}

prometheus::MetricType TypeOf(MetricType type) {
  switch (type) {
    case MetricType::kGauge:
      return prometheus::MetricType::Gauge;
    case MetricType::kCounter:
      return prometheus::MetricType::Counter;
    case MetricType::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

prometheus::ClientMetric::Histogram HistogramOf(const Histogram& histogram) {
  prometheus::ClientMetric::Histogram out;
  out.sample_count = histogram.count();
  out.sample_sum = histogram.sum_seconds();
  const std::vector<uint64_t> cumulative = histogram.Cumulative();
  const absl::Span<const double> bounds = Histogram::Bounds();
  for (size_t i = 0; i < bounds.size(); ++i) {
    out.bucket.push_back(
        {.cumulative_count = cumulative[i], .upper_bound = bounds[i]});
  }
  return out;
}

prometheus::MetricFamily FamilyOf(const MetricFamily& family) {
  prometheus::MetricFamily out;
  out.name = family.name;
  out.help = AsUtf8(family.help);
  out.type = TypeOf(family.type);
  for (const MetricSample& sample : family.samples) {
    prometheus::ClientMetric& metric = out.metric.emplace_back();
    for (const auto& [name, value] : sample.labels) {
      metric.label.push_back({name, AsUtf8(value)});
    }
    metric.gauge.value = sample.value;
    metric.counter.value = sample.value;
    metric.histogram = HistogramOf(sample.histogram);
  }
  return out;
}

// `text` as OpenMetrics, which prometheus-cpp does not write: there a counter
// is named without what its samples end in, a bound looks like a float, and the
// end is said.
std::string AsOpenMetrics(const std::string& text) {
  std::string out;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (line[0] == '#') {
      std::vector<std::string> words =
          absl::StrSplit(line, absl::MaxSplits(' ', 3));
      if (words.size() > 2) {
        words[2] = std::string(absl::StripSuffix(words[2], "_total"));
      }
      absl::StrAppend(&out, absl::StrJoin(words, " "), "\n");
      continue;
    }
    std::string sample(line);
    for (const absl::string_view whole : {"1", "10"}) {
      absl::StrReplaceAll({{absl::StrCat("le=\"", whole, "\"}"),
                            absl::StrCat("le=\"", whole, ".0\"}")}},
                          &sample);
    }
    absl::StrAppend(&out, sample, "\n");
  }
  return out + "# EOF\n";
}

// How much a range of an Accept field is wanted: its q.
double WeightOf(const std::vector<absl::string_view>& parts) {
  for (size_t i = 1; i < parts.size(); ++i) {
    absl::string_view parameter = absl::StripAsciiWhitespace(parts[i]);
    double weight = 0;
    if (absl::ConsumePrefix(&parameter, "q=")) {
      return absl::SimpleAtod(parameter, &weight) ? weight : 0;
    }
  }
  return 1;
}

}  // namespace

MetricsFormat FormatFor(absl::string_view accept) {
  double open = 0;
  double other = 0;
  for (const absl::string_view range : absl::StrSplit(accept, ',')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(range, ';');
    const std::string type =
        absl::AsciiStrToLower(absl::StripAsciiWhitespace(parts[0]));
    if (type.empty()) continue;
    double& weight = type == "application/openmetrics-text" ? open : other;
    weight = std::max(weight, WeightOf(parts));
  }
  return open > 0 && open >= other ? MetricsFormat::kOpenMetrics
                                   : MetricsFormat::kText;
}

absl::string_view ContentTypeOf(MetricsFormat format) {
  return format == MetricsFormat::kOpenMetrics
             ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
             : "text/plain; version=0.0.4; charset=utf-8";
}

std::string RenderMetrics(const std::vector<MetricFamily>& families,
                          MetricsFormat format) {
  std::vector<prometheus::MetricFamily> out;
  for (const MetricFamily& family : families) out.push_back(FamilyOf(family));
  const std::string text = prometheus::TextSerializer().Serialize(out);
  return format == MetricsFormat::kOpenMetrics ? AsOpenMetrics(text) : text;
}

}  // namespace cohort::head
