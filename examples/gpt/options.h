#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "examples/run_options.h"

namespace cohort::gpt {

struct GptShape {
  int64_t context = 128;
  int64_t width = 128;
  int64_t heads = 4;
  int64_t layers = 4;
};

enum class Precision { kF32, kBF16 };

struct TrainOptions : examples::SessionOptions {
  bool use_gpu = false;
  std::string data;  // a file of text
  GptShape shape;
  Precision precision = Precision::kF32;
  int64_t epochs = 1;
  int64_t batch = 16;  // windows a step and worker
  double lr = 0.001;
  uint64_t seed = 1;
  int64_t steps = 0;             // stop after so many; 0: all epochs
  int64_t checkpoint_every = 0;  // steps, besides each epoch's end
  std::string loss_log;          // a line a step; empty: none
  std::string prompt = "Call me Ishmael. ";
  int64_t sample = 200;  // bytes to write behind the prompt at the end
};

// What `argv` says; checks values, and that the text is there.
std::variant<TrainOptions, examples::ExitNow> ParseOptions(int argc,
                                                           char** argv);

}  // namespace cohort::gpt
