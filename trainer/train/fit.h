#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "client/job.h"
#include "trainer/train/result.h"

namespace cohort::train {

// What Trainer::Fit asks for.
struct FitRequest {
  std::string loop;    // its registered name
  std::string config;  // encoded
  ScalingConfig scaling_config{};
  RunConfig run_config{};
  std::string resume_from{};
  // Told of metrics as they come, on Fit's thread; may be null.
  std::function<void(const Metrics&)> on_metrics{};
  // In a rank: a hash of all this, which its checkpoints' manifests have.
  std::string spec{};
};

// From the current directory; "" stays "".
std::string AbsolutePath(const std::string& path);

// As Trainer::Fit, which is where it is written down.
absl::StatusOr<Result> FitLoop(const FitRequest& request);

// The first line of the main of a program that calls Fit, unless it calls
// cohort::Init, which does the same: in a rank that a driver's Fit started it
// runs the loop and does not return; elsewhere it does nothing.  Without it
// such a rank runs main up to its first Fit.
void ServeRanks();

// An encoded configuration travels in the environment of each rank.
inline constexpr size_t kConfigBytesMax = 48 << 10;

}  // namespace cohort::train
