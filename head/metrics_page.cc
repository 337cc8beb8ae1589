#include "head/metrics_page.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace cohort::head {
namespace {

constexpr double kBounds[] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005,
                              0.01,   0.025,   0.05,   0.1,   0.25,   0.5,
                              1.0,    2.5,     5.0,    10.0};

// The shortest text that reads back as `value`.
std::string NumberText(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char buffer[32];
  const std::to_chars_result end =
      std::to_chars(buffer, buffer + sizeof(buffer), value);
  return std::string(buffer, end.ptr);
}

// OpenMetrics wants a bound to look like a float.
std::string BoundText(double bound, MetricsFormat format) {
  std::string text = absl::StrCat(bound);  // has no exponent from 1e-4 to 1e5
  if (format == MetricsFormat::kOpenMetrics &&
      text.find('.') == std::string::npos) {
    text.append(".0");
  }
  return text;
}

std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(text,
                             {{"\\", "\\\\"}, {"\n", "\\n"}, {"\"", "\\\""}});
}

// A quote means nothing in a help of the text format, and is escaped in one of
// OpenMetrics.
std::string EscapedHelp(absl::string_view text, MetricsFormat format) {
  if (format == MetricsFormat::kOpenMetrics) return Escaped(text);
  return absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\n", "\\n"}});
}

absl::string_view TypeText(MetricType type) {
  switch (type) {
    case MetricType::kGauge:
      return "gauge";
    case MetricType::kCounter:
      return "counter";
    case MetricType::kHistogram:
      return "histogram";
  }
  return "untyped";
}

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

void AppendLine(absl::string_view name, const MetricLabels& labels,
                absl::string_view bound, absl::string_view value,
                std::string& text) {
  text.append(name.data(), name.size());
  char separator = '{';
  const auto label = [&](absl::string_view key, absl::string_view of) {
    absl::StrAppend(&text, absl::string_view(&separator, 1), key, "=\"",
                    Escaped(AsUtf8(of)), "\"");
    separator = ',';
  };
  for (const auto& [key, of] : labels) label(key, of);
  if (!bound.empty()) label("le", bound);
  if (separator == ',') text.push_back('}');
  absl::StrAppend(&text, " ", value, "\n");
}

void AppendHistogram(const std::string& name, const MetricSample& sample,
                     MetricsFormat format, std::string& text) {
  const std::vector<uint64_t> cumulative = sample.histogram.Cumulative();
  const absl::Span<const double> bounds = Histogram::Bounds();
  for (size_t i = 0; i < cumulative.size(); ++i) {
    AppendLine(
        name + "_bucket", sample.labels,
        i < bounds.size() ? BoundText(bounds[i], format) : std::string("+Inf"),
        absl::StrCat(cumulative[i]), text);
  }
  AppendLine(name + "_sum", sample.labels, "",
             NumberText(sample.histogram.sum_seconds()), text);
  AppendLine(name + "_count", sample.labels, "",
             absl::StrCat(sample.histogram.count()), text);
}

void AppendFamily(const MetricFamily& family, MetricsFormat format,
                  std::string& text) {
  // OpenMetrics names a counter without what its samples end in.
  absl::string_view name = family.name;
  if (format == MetricsFormat::kOpenMetrics) {
    name = absl::StripSuffix(name, "_total");
  }
  absl::StrAppend(&text, "# HELP ", name, " ",
                  EscapedHelp(AsUtf8(family.help), format), "\n# TYPE ", name,
                  " ", TypeText(family.type), "\n");
  for (const MetricSample& sample : family.samples) {
    if (family.type == MetricType::kHistogram) {
      AppendHistogram(family.name, sample, format, text);
    } else {
      AppendLine(family.name, sample.labels, "", NumberText(sample.value),
                 text);
    }
  }
}

MetricFamily Family(MetricType type, absl::string_view name,
                    absl::string_view help) {
  MetricFamily family;
  family.name = std::string(name);
  family.help = std::string(help);
  family.type = type;
  return family;
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
  std::string text;
  for (const MetricFamily& family : families) {
    AppendFamily(family, format, text);
  }
  if (format == MetricsFormat::kOpenMetrics) text.append("# EOF\n");
  return text;
}

}  // namespace cohort::head
