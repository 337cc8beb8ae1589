#include "bench/report.h"

#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include <nlohmann/json.hpp>

namespace cohort::bench {
namespace {

// Of the working directory, which tools/bench.sh makes the repository.
std::string Commit() {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(
      popen("git describe --always --dirty --abbrev=12 2>/dev/null", "r"),
      pclose);
  char line[128] = {};
  if (pipe == nullptr || fgets(line, sizeof(line), pipe.get()) == nullptr) {
    return "unknown";
  }
  return std::string(absl::StripAsciiWhitespace(line));
}

double Load() {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? load : 0;
}

// 1 is at the floor, 2 is twice as bad, whatever the unit.
std::optional<double> Ratio(const Figure& figure, double value) {
  if (!figure.floor || *figure.floor <= 0 || value <= 0) return std::nullopt;
  return figure.less_is_better ? value / *figure.floor : *figure.floor / value;
}

// How many times better than the peer.
std::optional<double> Lead(const Figure& figure, double value) {
  if (!figure.peer_value || *figure.peer_value <= 0 || value <= 0) {
    return std::nullopt;
  }
  return figure.less_is_better ? *figure.peer_value / value
                               : value / *figure.peer_value;
}

nlohmann::ordered_json Optional(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

}  // namespace

Flags ParseFlags(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) {
      flags.json = true;
    } else if (std::strcmp(argv[i], "--quick") == 0) {
      flags.quick = true;
    } else {
      std::fprintf(stderr, "usage: %s [--json] [--quick]\n", argv[0]);
      exit(2);  // NOLINT(concurrency-mt-unsafe): no thread has begun.
    }
  }
  return flags;
}

int Skip(const std::string& bench, const std::string& why) {
  // Not among the figures, which a program may read.
  std::fprintf(stderr, "bench_%s: skipped: %s\n", bench.c_str(), why.c_str());
  return 0;
}

double Samples::median() const {
  if (values.empty()) return 0;
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle]
                                : (sorted[middle - 1] + sorted[middle]) / 2;
}

double Samples::min() const {
  return values.empty() ? 0 : *std::min_element(values.begin(), values.end());
}

double Samples::max() const {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

double Samples::Percentile(double percent) const {
  if (values.empty()) return 0;
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  const double count = static_cast<double>(sorted.size());
  const double rank = std::ceil(percent / 100 * count);
  return sorted[static_cast<size_t>(std::clamp(rank, 1.0, count)) - 1];
}

Report::Report(std::string bench, const Flags& flags)
    : bench_(std::move(bench)), flags_(flags), commit_(Commit()) {}

void Report::Add(const Figure& figure) {
  const double value = figure.samples.median();
  const std::optional<double> ratio = Ratio(figure, value);
  if (flags_.json) {
    const nlohmann::ordered_json line = {
        {"bench", bench_},
        {"case", figure.name},
        {"value", value},
        {"unit", figure.unit},
        {"floor", Optional(figure.floor)},
        {"ratio", Optional(ratio)},
        {"peer", figure.peer.empty() ? nlohmann::ordered_json()
                                     : nlohmann::ordered_json(figure.peer)},
        {"peer_value", Optional(figure.peer_value)},
        {"runs", figure.samples.values.size()},
        {"min", figure.samples.min()},
        {"max", figure.samples.max()},
        {"load", Load()},
        {"commit", commit_},
        {"build", COHORT_BENCH_BUILD},
    };
    std::printf("%s\n", line.dump().c_str());
  } else {
    std::string text = absl::StrFormat(
        "%s %-24s %10.4g %s  (%d runs, %.4g to %.4g)", bench_, figure.name,
        value, figure.unit, figure.samples.values.size(), figure.samples.min(),
        figure.samples.max());
    if (ratio) {
      absl::StrAppendFormat(&text, "  floor %.4g: %.2fx", *figure.floor,
                            *ratio);
    }
    if (const std::optional<double> lead = Lead(figure, value)) {
      absl::StrAppendFormat(&text, "  %s %.4g: %.1fx better", figure.peer,
                            *figure.peer_value, *lead);
    }
    absl::StrAppendFormat(&text, "  load %.1f", Load());
    std::printf("%s\n", text.c_str());
  }
  std::fflush(stdout);
}

void Report::Leave(const std::string& name, const std::string& unit,
                   const std::string& why) {
  if (flags_.json) {
    const nlohmann::ordered_json line = {{"bench", bench_},  {"case", name},
                                         {"value", nullptr}, {"unit", unit},
                                         {"floor", nullptr}, {"ratio", nullptr},
                                         {"why", why}};
    std::printf("%s\n", line.dump().c_str());
  } else {
    std::printf("%s %-24s not measured: %s\n", bench_.c_str(), name.c_str(),
                why.c_str());
  }
  std::fflush(stdout);
}

}  // namespace cohort::bench
