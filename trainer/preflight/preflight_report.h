#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace cohort::trainer {

// Where a rank is.
struct RankFacts {
  int node = 0;
  std::string host;
  // Why it cannot use a GPU that it was granted; empty: it can, or has none.
  std::string no_gpu;
};

// What two ranks measured, a < b.
struct PairResult {
  int a = 0;
  int b = 0;
  std::string error;  // why the pair failed; empty: it did not
  // Of the bytes that each rank sends and receives in the best all-reduce: the
  // buffer, in the time it takes.
  double gigabytes_per_second = 0;
};

// What a gang found out about itself before its command runs.
struct PreflightReport {
  int world = 1;
  std::string transport;  // "shared memory", "Gloo"; empty for a world of one
  std::vector<RankFacts> ranks;
  // Why GPUs that can be used are not tried together; empty: they are, or there
  // are none.
  std::string no_gpus_because;
  std::vector<PairResult> pairs;  // those that were measured
};

// Pairs are slow below this part of the median of their like, ...
inline constexpr double kSlowBelow = 0.5;
// ... and broken below this one.
inline constexpr double kBrokenBelow = 0.1;
// Of fewer pairs there is no usual one.
inline constexpr size_t kLikeMin = 3;
// PF-5.
inline constexpr size_t kReportBytesMax = 16 << 10;
inline constexpr size_t kSummaryBytesMax = 1 << 10;

// The pair that is farthest below its like: those on one node, or on two.
struct SlowestPair {
  size_t pair = 0;   // of PreflightReport::pairs
  double usual = 0;  // the median of its like, in GB/s
  bool is_slow = false;
  bool is_broken = false;  // slow, too
};

struct Judgement {
  enum class Verdict { kPassed, kSlow, kFailed };

  Verdict verdict = Verdict::kPassed;
  // On one line, at most kSummaryBytesMax: of a failure the rank whose GPU is
  // unusable, or the pair; else the slowest pair, what was measured and what
  // was to be expected.
  std::string summary;
  // That cannot use their GPUs, or are of pairs that failed or are broken.
  std::vector<int> failed_ranks;
  std::optional<SlowestPair> slowest;
};

// The same on all ranks, from the same report.  Pure.
Judgement Judge(const PreflightReport& report);

// One JSON object of at most kReportBytesMax: failed_ranks, in a large gang the
// first of them, and slowest_pair (docs/operations/jobs.md).
std::string ToJson(const PreflightReport& report, const Judgement& judgement);

}  // namespace cohort::trainer
