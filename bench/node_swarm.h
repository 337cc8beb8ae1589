#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "bench/report.h"
#include "bench/swarm.h"

namespace cohort::bench {

// What the stream of node `number` says first, a machine with 8 GPUs, and then
// each period.
std::string RegisterOf(int number);
std::string BeatOf(int number, const std::string& answer);
// As long as BeatOf, for a server that knows no nodes.
std::string FloorBeatOf(int number, const std::string& answer);

// CPU time and memory of a process so far.
struct Usage {
  absl::Duration cpu;
  double mebibytes = 0;
};

absl::StatusOr<Usage> UsageOf(int64_t pid);

// A server and the streams to it.  Thread-compatible.
class Side {
 public:
  Side(int64_t pid, SwarmOptions options)
      : pid_(pid), options_(std::move(options)) {}

  // Blocks until all streams are open and answered, and pauses them.
  absl::Status Join();
  // The streams speak for `window`, and are paused again.
  absl::Status Run(absl::Duration window, bool counts);

  const Samples& cpu_percent() const { return cpu_percent_; }
  double mebibytes() const { return mebibytes_; }
  double joined_ms() const { return joined_ms_; }

 private:
  const int64_t pid_;
  const SwarmOptions options_;
  Usage idle_;
  std::unique_ptr<Swarm> swarm_;
  Samples cpu_percent_;  // of one core
  double mebibytes_ = 0;
  double joined_ms_ = 0;
};

}  // namespace cohort::bench
