#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace cohort::mnist {

// How a run went, step by step.
struct LossHistory {
  std::vector<double> losses{};       // by step, from step 1
  std::vector<int64_t> epoch_ends{};  // steps at which an epoch was over
  std::vector<double> accuracies{};   // in percent, one an epoch end
};

// The history as an SVG picture: each step's loss, its running mean, and the
// test accuracy at each epoch's end.  The same history gives the same bytes.
std::string DrawLossCurve(const LossHistory& history);

// Writes it to `path`.  Errors name the path.
absl::Status WriteLossCurve(const LossHistory& history,
                            const std::string& path);

}  // namespace cohort::mnist
