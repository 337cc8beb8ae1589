#include "trainer/preflight/preflight_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

#include "common/printable_text.h"

namespace cohort::trainer {
namespace {

using Json = nlohmann::ordered_json;
using Verdict = Judgement::Verdict;

// That many of each are told; fewer where they do not fit.
constexpr size_t kRanksShownMax = 64;
constexpr size_t kPairsShownMax = 64;
constexpr size_t kErrorBytesMax = 256;

// REQUIRES: !values.empty().
double Median(std::vector<double> values) {
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + middle, values.end());
  return values[middle];
}

const LinkFigures& FiguresOf(const PairResult& pair, bool on_gpu) {
  return on_gpu ? *pair.gpu : pair.host;
}

bool HasFigures(const PairResult& pair, bool on_gpu) {
  return !pair.failed && (!on_gpu || pair.gpu.has_value());
}

std::string PlaceOf(const RankFacts& rank) {
  return rank.interface.empty() ? rank.host
                                : absl::StrCat(rank.interface, " ", rank.host);
}

std::string PairText(const PreflightReport& report, const PairResult& pair,
                     bool on_gpu) {
  std::string text = absl::StrCat("ranks ", pair.a, " and ", pair.b, " over ",
                                  on_gpu ? report.gpus_over : report.transport);
  const size_t ranks = report.ranks.size();
  if (report.nodes > 1 && static_cast<size_t>(pair.b) < ranks) {
    absl::StrAppend(&text, " (", PlaceOf(report.ranks[pair.a]), ", ",
                    PlaceOf(report.ranks[pair.b]), ")");
  }
  return text;
}

std::string FindingText(const PreflightReport& report,
                        const PairFinding& finding) {
  const PairResult& pair = report.pairs[finding.pair];
  const std::string who = PairText(report, pair, finding.on_gpu);
  if (pair.failed) {
    return absl::StrCat(who, ": ",
                        pair.error.empty() ? "no connection" : pair.error);
  }
  return absl::StrFormat("%s: %.3g GB/s where %.3g GB/s is usual", who,
                         finding.measured, finding.expected);
}

// Pairs that are alike have one median.
void FindSlow(const PreflightReport& report, bool on_gpu,
              std::vector<PairFinding>& findings) {
  const auto crosses = [&](const PairResult& pair) {
    return report.ranks[pair.a].node != report.ranks[pair.b].node;
  };
  std::map<bool, std::vector<double>> like;
  for (const PairResult& pair : report.pairs) {
    if (!HasFigures(pair, on_gpu)) continue;
    like[crosses(pair)].push_back(FiguresOf(pair, on_gpu).gigabytes_per_second);
  }
  std::map<bool, double> usual;
  for (auto& [kind, values] : like) {
    if (values.size() >= kLikeMin) usual[kind] = Median(std::move(values));
  }
  for (size_t i = 0; i < report.pairs.size(); ++i) {
    const PairResult& pair = report.pairs[i];
    if (!HasFigures(pair, on_gpu)) continue;
    const auto expected = usual.find(crosses(pair));
    if (expected == usual.end()) continue;
    const double measured = FiguresOf(pair, on_gpu).gigabytes_per_second;
    if (measured >= kSlowBelow * expected->second) continue;
    findings.push_back({.pair = i,
                        .on_gpu = on_gpu,
                        .is_broken = measured < kBrokenBelow * expected->second,
                        .measured = measured,
                        .expected = expected->second});
  }
}

std::string FiguresText(const LinkFigures& figures) {
  return absl::StrFormat("%.3g GB/s, %.3g us", figures.gigabytes_per_second,
                         figures.latency_us);
}

std::vector<double> Of(const PreflightReport& report, bool on_gpu,
                       double LinkFigures::*figure) {
  std::vector<double> values;
  for (const PairResult& pair : report.pairs) {
    if (HasFigures(pair, on_gpu)) {
      values.push_back(FiguresOf(pair, on_gpu).*figure);
    }
  }
  return values;
}

std::string MediansText(const PreflightReport& report, bool on_gpu) {
  const auto bandwidths =
      Of(report, on_gpu, &LinkFigures::gigabytes_per_second);
  if (bandwidths.empty()) return "";
  return absl::StrCat(
      "; ", report.pairs.size(), report.pairs.size() == 1 ? " pair" : " pairs",
      ", median ",
      FiguresText(
          {.latency_us = Median(Of(report, on_gpu, &LinkFigures::latency_us)),
           .gigabytes_per_second = Median(bandwidths)}));
}

std::string PassedText(const PreflightReport& report) {
  if (report.world == 1) {
    return absl::StrCat("a gang of one rank meets nobody",
                        report.opened.empty() ? "" : "; it can use ",
                        report.opened);
  }
  std::string text = absl::StrCat(
      report.world, " ranks over ", report.transport, ": all together ",
      FiguresText(report.all_host), MediansText(report, false));
  if (report.all_gpu.has_value()) {
    absl::StrAppend(&text, "; over ", report.gpus_over, ": all together ",
                    FiguresText(*report.all_gpu), MediansText(report, true));
  }
  return text;
}

// Of ranks that cannot use their GPUs; empty when all can.
std::string LackingText(const PreflightReport& report) {
  std::string text;
  size_t lacking = 0;
  for (size_t rank = 0; rank < report.ranks.size(); ++rank) {
    const RankFacts& facts = report.ranks[rank];
    if (facts.no_gpu.empty() || lacking++ > 0) continue;
    text = absl::StrCat("rank ", rank, " on ", facts.host,
                        " cannot use its GPU: ", facts.no_gpu);
  }
  if (lacking > 1) {
    absl::StrAppend(&text, "; and ", lacking - 1, " more of ", report.world,
                    " ranks");
  }
  return text;
}

// The first to say why, then those that are farthest from what is usual.
std::vector<PairFinding> FindPairs(const PreflightReport& report) {
  std::vector<PairFinding> findings;
  for (size_t i = 0; i < report.pairs.size(); ++i) {
    if (report.pairs[i].failed) {
      findings.push_back({.pair = i, .is_broken = true});
    }
  }
  FindSlow(report, /*on_gpu=*/false, findings);
  FindSlow(report, /*on_gpu=*/true, findings);
  std::stable_sort(
      findings.begin(), findings.end(),
      [&](const PairFinding& x, const PairFinding& y) {
        const auto key = [&](const PairFinding& finding) {
          const PairResult& pair = report.pairs[finding.pair];
          return std::make_tuple(
              !pair.failed, pair.error.empty(),
              finding.expected > 0 ? finding.measured / finding.expected : 0);
        };
        return key(x) < key(y);
      });
  return findings;
}

// ---- JSON ----

// Three digits say all that a measurement does.
double Rounded(double value) {
  if (!(value > 0) || !std::isfinite(value)) return 0;
  const double unit = std::pow(10, std::floor(std::log10(value)) - 2);
  return std::round(value / unit) * unit;
}

Json Number(double value) {
  // As text, so that 0.3 does not become 0.30000000000000004.
  return Json::parse(absl::StrFormat("%.6g", Rounded(value)));
}

Json FiguresJson(const LinkFigures& figures) {
  return {{"latency_us", Number(figures.latency_us)},
          {"gigabytes_per_second", Number(figures.gigabytes_per_second)}};
}

Json FiguresJson(const std::optional<LinkFigures>& figures) {
  return figures.has_value() ? FiguresJson(*figures) : Json(nullptr);
}

Json OrNull(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

Json SpreadJson(std::vector<double> values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return {{"min", Number(*least)},
          {"median", Number(Median(values))},
          {"max", Number(*most)}};
}

Json SpreadsJson(const PreflightReport& report, bool on_gpu) {
  const auto latencies = Of(report, on_gpu, &LinkFigures::latency_us);
  if (latencies.empty()) return nullptr;
  return {{"latency_us", SpreadJson(latencies)},
          {"gigabytes_per_second",
           SpreadJson(Of(report, on_gpu, &LinkFigures::gigabytes_per_second))}};
}

Json RankJson(size_t rank, const RankFacts& facts) {
  return {{"rank", rank},
          {"node", facts.node},
          {"host", facts.host},
          {"interface", OrNull(facts.interface)},
          {"megabits_per_second", facts.megabits_per_second == 0
                                      ? Json(nullptr)
                                      : Json(facts.megabits_per_second)},
          {"no_gpu_because", OrNull(facts.no_gpu)}};
}

Json PairJson(const PairResult& pair) {
  Json json = {{"ranks", {pair.a, pair.b}},
               {"host", pair.failed ? Json(nullptr) : FiguresJson(pair.host)},
               {"gpu", FiguresJson(pair.gpu)}};
  if (pair.failed) json["error"] = Cut(OneLine(pair.error), kErrorBytesMax);
  return json;
}

Json FindingJson(const PreflightReport& report, const PairFinding& finding) {
  const PairResult& pair = report.pairs[finding.pair];
  return {{"ranks", {pair.a, pair.b}},
          {"on", finding.on_gpu ? "gpu" : "host"},
          {"is", pair.failed || finding.is_broken ? "failed" : "slow"},
          {"measured", Number(finding.measured)},
          {"expected", Number(finding.expected)}};
}

// Those of findings in front, then by who they are.
std::vector<size_t> PairsInOrder(const PreflightReport& report,
                                 const Judgement& judgement) {
  std::vector<size_t> order;
  std::set<size_t> taken;
  const auto take = [&](size_t pair) {
    if (taken.insert(pair).second) order.push_back(pair);
  };
  for (const PairFinding& finding : judgement.findings) take(finding.pair);
  for (size_t pair = 0; pair < report.pairs.size(); ++pair) take(pair);
  return order;
}

Json GpusJson(const PreflightReport& report) {
  if (report.gpus_over.empty()) return nullptr;
  return {{"over", report.gpus_over},
          {"network", OrNull(report.nccl_ways.network)},
          {"transports", report.nccl_ways.transports}};
}

Json ReportJson(const PreflightReport& report, const Judgement& judgement,
                size_t ranks_max, size_t pairs_max) {
  const size_t world = static_cast<size_t>(report.world);
  Json json = {
      {"world", report.world},
      {"nodes", report.nodes},
      {"seconds", Number(report.seconds)},
      {"transport", OrNull(report.transport)},
      {"all",
       {{"host",
         report.world == 1 ? Json(nullptr) : FiguresJson(report.all_host)},
        {"gpu", FiguresJson(report.all_gpu)}}},
      {"gpus", GpusJson(report)},
      {"no_gpus_because", OrNull(Cut(report.no_gpus_because, kErrorBytesMax))},
      {"pairs", world * (world - 1) / 2},
      {"pairs_measured", report.pairs.size()},
      {"host", SpreadsJson(report, false)},
      {"gpu", SpreadsJson(report, true)}};
  json["findings"] = Json::array();
  for (const PairFinding& finding : judgement.findings) {
    if (json["findings"].size() == pairs_max) break;
    json["findings"].push_back(FindingJson(report, finding));
  }
  json["each_pair"] = Json::array();
  for (const size_t pair : PairsInOrder(report, judgement)) {
    if (json["each_pair"].size() == pairs_max) break;
    json["each_pair"].push_back(PairJson(report.pairs[pair]));
  }
  json["each_rank"] = Json::array();
  for (size_t rank = 0; rank < std::min(report.ranks.size(), ranks_max);
       ++rank) {
    json["each_rank"].push_back(RankJson(rank, report.ranks[rank]));
  }
  return json;
}

}  // namespace

Judgement Judge(const PreflightReport& report) {
  Judgement judgement;
  if (std::string lacking = LackingText(report); !lacking.empty()) {
    judgement.verdict = Verdict::kFailed;
    judgement.summary = Cut(OneLine(lacking), kSummaryBytesMax);
    return judgement;
  }
  judgement.findings = FindPairs(report);
  std::string summary;
  if (judgement.findings.empty()) {
    summary = PassedText(report);
  } else {
    const PairFinding& worst = judgement.findings.front();
    judgement.verdict = worst.is_broken ? Verdict::kFailed : Verdict::kSlow;
    summary = FindingText(report, worst);
    if (const size_t more = judgement.findings.size() - 1; more > 0) {
      absl::StrAppend(&summary, "; and ", more, " more of ",
                      report.pairs.size(), " pairs");
    }
  }
  // The command may bring what they lack, such as an NCCL of its own.
  if (!report.no_gpus_because.empty()) {
    judgement.verdict = std::max(judgement.verdict, Verdict::kSlow);
    absl::StrAppend(&summary, "; the GPUs were not tried together: ",
                    report.no_gpus_because);
  }
  judgement.summary = Cut(OneLine(summary), kSummaryBytesMax);
  return judgement;
}

std::string ToJson(const PreflightReport& report, const Judgement& judgement) {
  size_t ranks = kRanksShownMax;
  size_t pairs = kPairsShownMax;
  for (;;) {
    // Bytes that are no UTF-8 become U+FFFD rather than an exception.
    const std::string text = ReportJson(report, judgement, ranks, pairs)
                                 .dump(-1, ' ', /*ensure_ascii=*/false,
                                       Json::error_handler_t::replace);
    if (text.size() <= kReportBytesMax || (ranks == 0 && pairs == 0)) {
      return text;
    }
    ranks /= 2;
    pairs /= 2;
  }
}

}  // namespace cohort::trainer
