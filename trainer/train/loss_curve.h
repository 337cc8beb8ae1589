#pragma once

#include <string>

#include "absl/status/status.h"

#include "trainer/train/history.h"

namespace cohort::train {

struct CurveOptions {
  std::string metric = "loss";
  std::string title;  // before "training loss"
  // A metric that is written where it was measured, such as an accuracy.
  std::string note;
};

// A metric of a run as an SVG picture: its value at each step, the running
// mean, and the notes.  The same history gives the same bytes.
std::string DrawLossCurve(const History& history, const CurveOptions& options);

// Writes it to `path`.  Errors name the path.
absl::Status WriteLossCurve(const History& history, const CurveOptions& options,
                            const std::string& path);

}  // namespace cohort::train
