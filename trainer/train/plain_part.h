#pragma once

#include <span>
#include <string>

#include "absl/status/status.h"

namespace cohort::train {

class Run;

// Makes plain numbers a part of the run: rank 0's, or the checkpoint's.
absl::Status PreparePlain(Run& run, const std::string& name,
                          std::span<float> values);
absl::Status PreparePlain(Run& run, const std::string& name,
                          std::span<double> values);

}  // namespace cohort::train
