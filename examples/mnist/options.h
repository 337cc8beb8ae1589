#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "examples/run_options.h"

namespace cohort::mnist {

struct NetShape {
  int64_t channels = 32;
  int64_t hidden = 128;
};

enum class Precision { kFloat32, kFloat64 };

struct TrainOptions : examples::RunOptions {
  bool use_gpu = false;
  Precision precision = Precision::kFloat32;
  NetShape shape;
  // Steps, besides each epoch's end; 0: only these.
  int64_t checkpoint_every = 0;
  std::string svg;  // loss curve; empty: none
  // A checkpoint to evaluate instead of training.
  std::string evaluate;
};

// What `argv` says; checks values, and that the data directory is there.
std::variant<TrainOptions, examples::ExitNow> ParseOptions(int argc,
                                                           char** argv);

}  // namespace cohort::mnist
