#pragma once

#include "absl/status/status.h"

#include "examples/gpt/options.h"

namespace cohort::gpt {

// What the command line asks for.  Apart from main, which reads no LibTorch
// header: they take most of a compilation.
absl::Status Train(const TrainOptions& options);

}  // namespace cohort::gpt
