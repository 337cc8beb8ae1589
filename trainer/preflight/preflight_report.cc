#include "trainer/preflight/preflight_report.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

#include "common/printable_text.h"

namespace cohort::trainer {
namespace {

using Json = nlohmann::ordered_json;
using Verdict = Judgement::Verdict;

// With the longest numbers of ranks half of kReportBytesMax.
constexpr size_t kRanksShownMax = 500;

// REQUIRES: !values.empty().
double Median(std::vector<double> values) {
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + middle, values.end());
  return values[middle];
}

std::string PairText(const PreflightReport& report, const PairResult& pair) {
  const RankFacts& a = report.ranks[pair.a];
  const RankFacts& b = report.ranks[pair.b];
  return absl::StrCat(
      "ranks ", pair.a, " and ", pair.b, " over ", report.transport,
      a.node == b.node ? "" : absl::StrCat(" (", a.host, ", ", b.host, ")"));
}

// Of pairs that were measured; those of a kind that has too few to be judged
// count last.
std::optional<SlowestPair> FindSlowest(const PreflightReport& report) {
  const auto crosses = [&](const PairResult& pair) {
    return report.ranks[pair.a].node != report.ranks[pair.b].node;
  };
  std::map<bool, std::vector<double>> like;
  for (const PairResult& pair : report.pairs) {
    if (pair.error.empty())
      like[crosses(pair)].push_back(pair.gigabytes_per_second);
  }
  std::map<bool, double> usual;
  for (const auto& [kind, values] : like) usual[kind] = Median(values);
  std::optional<SlowestPair> slowest;
  std::pair<bool, double> least;
  for (size_t i = 0; i < report.pairs.size(); ++i) {
    const PairResult& pair = report.pairs[i];
    if (!pair.error.empty()) continue;
    const bool kind = crosses(pair);
    const bool has_too_few = like[kind].size() < kLikeMin;
    const double part = pair.gigabytes_per_second / usual[kind];
    const std::pair<bool, double> key = {has_too_few, part};
    if (slowest.has_value() && !(key < least)) continue;
    least = key;
    slowest = SlowestPair{.pair = i,
                          .usual = usual[kind],
                          .is_slow = !has_too_few && part < kSlowBelow,
                          .is_broken = !has_too_few && part < kBrokenBelow};
  }
  return slowest;
}

std::string SlowestText(const PreflightReport& report,
                        const SlowestPair& slowest) {
  const PairResult& pair = report.pairs[slowest.pair];
  return absl::StrFormat("%s: %.3g GB/s where %.3g GB/s is usual",
                         PairText(report, pair), pair.gigabytes_per_second,
                         slowest.usual);
}

// Of the first rank that cannot use its GPUs; empty when all can.
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

// Of the first pair that failed; empty when none did.
std::string FailedPairText(const PreflightReport& report) {
  std::string text;
  size_t failed = 0;
  for (const PairResult& pair : report.pairs) {
    if (pair.error.empty() || failed++ > 0) continue;
    text = absl::StrCat(PairText(report, pair), ": ", pair.error);
  }
  if (failed > 1) {
    absl::StrAppend(&text, "; and ", failed - 1, " more of ",
                    report.pairs.size(), " pairs");
  }
  return text;
}

std::vector<int> FailedRanks(const PreflightReport& report,
                             const std::optional<SlowestPair>& slowest) {
  std::set<int> failed;
  for (size_t rank = 0; rank < report.ranks.size(); ++rank) {
    if (!report.ranks[rank].no_gpu.empty())
      failed.insert(static_cast<int>(rank));
  }
  for (const PairResult& pair : report.pairs) {
    if (!pair.error.empty()) failed.insert({pair.a, pair.b});
  }
  if (slowest.has_value() && slowest->is_broken) {
    const PairResult& pair = report.pairs[slowest->pair];
    failed.insert({pair.a, pair.b});
  }
  return {failed.begin(), failed.end()};
}

std::string SummaryOf(const PreflightReport& report,
                      const std::optional<SlowestPair>& slowest) {
  if (std::string lacking = LackingText(report); !lacking.empty()) {
    return lacking;
  }
  if (report.world == 1) return "a gang of one rank meets nobody";
  std::string text = FailedPairText(report);
  if (text.empty() && slowest.has_value()) {
    text = SlowestText(report, *slowest);
    if (!slowest->is_slow) {
      text = absl::StrCat(report.world, " ranks; the slowest pair: ", text);
    }
  }
  if (!report.no_gpus_because.empty()) {
    absl::StrAppend(
        &text, "; the GPUs were not tried together: ", report.no_gpus_because);
  }
  return text;
}

}  // namespace

Judgement Judge(const PreflightReport& report) {
  Judgement judgement;
  judgement.slowest = FindSlowest(report);
  judgement.failed_ranks = FailedRanks(report, judgement.slowest);
  const bool is_slow = judgement.slowest && judgement.slowest->is_slow;
  if (!judgement.failed_ranks.empty()) {
    judgement.verdict = Verdict::kFailed;
  } else if (is_slow || !report.no_gpus_because.empty()) {
    // The command may bring what GPUs lack, such as an NCCL of its own.
    judgement.verdict = Verdict::kSlow;
  }
  judgement.summary =
      Cut(OneLine(SummaryOf(report, judgement.slowest)), kSummaryBytesMax);
  return judgement;
}

std::string ToJson(const PreflightReport& report, const Judgement& judgement) {
  Json json = {{"failed_ranks", Json::array()}, {"slowest_pair", nullptr}};
  for (const int rank : judgement.failed_ranks) {
    if (json["failed_ranks"].size() == kRanksShownMax) break;
    json["failed_ranks"].push_back(rank);
  }
  if (judgement.slowest.has_value()) {
    const PairResult& pair = report.pairs[judgement.slowest->pair];
    json["slowest_pair"] = {{"ranks", {pair.a, pair.b}},
                            {"gigabytes_per_second", pair.gigabytes_per_second},
                            {"usual", judgement.slowest->usual}};
  }
  return json.dump();
}

}  // namespace cohort::trainer
