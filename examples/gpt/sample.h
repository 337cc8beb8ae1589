#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "torch/types.h"

#include "examples/gpt/model.h"

namespace cohort::gpt {

// What `model`, on `device`, writes behind `prompt`: `count` bytes, each drawn
// from what it foretells, sharpened a little (temperature 0.8).  The same for
// the same weights and seed.  INTERNAL is LibTorch's error.
// REQUIRES: a prompt of at least one byte.
absl::StatusOr<std::string> Sample(GptImpl& model, torch::Device device,
                                   const std::string& prompt, int64_t count,
                                   uint64_t seed);

}  // namespace cohort::gpt
