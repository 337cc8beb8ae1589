#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/preflight/nccl_log.h"

namespace cohort::trainer {

// How fast ranks reduce together.  Bandwidth is that of the bytes which each
// rank sends and receives in the best algorithm, 2 (n - 1) / n times the buffer
// in the time it takes, as nccl-tests' "bus bandwidth": worlds of any size are
// comparable.
struct LinkFigures {
  double latency_us = 0;  // of 4 bytes
  double gigabytes_per_second = 0;

  friend bool operator==(const LinkFigures&, const LinkFigures&) = default;
};

// Where a rank is.
struct RankFacts {
  int node = 0;
  std::string host;
  // The network interface with that address; empty where it has none.
  std::string interface;
  int64_t megabits_per_second = 0;  // 0: not known
  // Why it cannot use a GPU that it was granted; empty: it can, or has none.
  std::string no_gpu;
};

// What two ranks measured, a < b.
struct PairResult {
  int a = 0;
  int b = 0;
  bool failed = false;
  std::string error;  // why, as far as it was told
  LinkFigures host;
  std::optional<LinkFigures> gpu;
};

// What a gang found out about itself before its command runs.
struct PreflightReport {
  int world = 1;
  int nodes = 1;
  double seconds = 0;
  std::string transport;  // "shared memory", "Gloo"; empty for a world of one
  std::vector<RankFacts> ranks;
  LinkFigures all_host;
  // Where ranks have GPUs: over what they connect, and how NCCL goes.
  std::string gpus_over;
  NcclWays nccl_ways;
  std::optional<LinkFigures> all_gpu;
  // Why GPUs that can be used are not tried together; empty: they are, or there
  // are none.
  std::string no_gpus_because;
  std::string opened;             // of a world of one: its GPUs
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

// A pair that is not as its like are: those on one node as it is, or on two, in
// host memory or on GPUs.
struct PairFinding {
  size_t pair = 0;  // of PreflightReport::pairs
  bool on_gpu = false;
  bool is_broken = false;
  double measured = 0;  // GB/s
  double expected = 0;  // the median
};

struct Judgement {
  enum class Verdict { kPassed, kSlow, kFailed };

  Verdict verdict = Verdict::kPassed;
  // On one line, at most kSummaryBytesMax: of a failure the rank whose GPU is
  // unusable, or the pair, its transport and interfaces, what was measured and
  // what was to be expected.
  std::string summary;
  std::vector<PairFinding> findings;  // the worst first
};

// The same on all ranks, from the same report.  Pure.
Judgement Judge(const PreflightReport& report);

// One JSON object of at most kReportBytesMax; in a large gang the first ranks
// and the worst pairs only (docs/operations.md lists the keys).
std::string ToJson(const PreflightReport& report, const Judgement& judgement);

}  // namespace cohort::trainer
