#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "examples/mnist/net.h"

namespace cohort::mnist {

enum class Precision { kFloat32, kFloat64 };

struct TrainOptions {
  std::string data;  // directory of the idx files
  int64_t epochs = 3;
  int64_t batch = 64;  // a worker
  double lr = 0.001;
  uint64_t seed = 1;
  Precision precision = Precision::kFloat32;
  NetShape shape;
  int64_t steps = 0;          // stop after so many; 0: all epochs
  int64_t train_samples = 0;  // the first N; 0: all
  int64_t test_samples = 0;   // the first N; 0: all
  int64_t checkpoint_every =
      0;                 // steps, besides each epoch's end; 0: only these
  std::string svg;       // loss curve; empty: none
  std::string loss_log;  // a line a step; empty: none
  // Without cohort only.
  std::string storage_path;  // empty: results
  std::string restore;       // empty: from the start

  // A checkpoint to evaluate instead of training.
  std::string evaluate;
};

// The exit code that --help or a bad command line asks for, after printing.
struct ExitNow {
  int code = 0;
};

// What `argv` says; checks values, and that the data directory is there.
std::variant<TrainOptions, ExitNow> ParseOptions(int argc, char** argv);

}  // namespace cohort::mnist
