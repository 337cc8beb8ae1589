#pragma once

#include <cstdint>
#include <variant>

#include "examples/run_options.h"
#include "trainer/comm/comm.h"

namespace cohort::mlp {

struct TrainOptions : examples::RunOptions {
  bool use_gpu = false;
  trainer::DType precision = trainer::DType::kF32;
  int64_t hidden = 512;
  int64_t hidden_layers = 2;
};

// What `argv` says; checks values, and that the data directory is there.
std::variant<TrainOptions, examples::ExitNow> ParseOptions(int argc,
                                                           char** argv);

}  // namespace cohort::mlp
