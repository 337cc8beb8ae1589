#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "trainer/comm/comm.h"

namespace cohort::mlp {

struct TrainOptions {
  std::string data;  // directory of the idx files
  bool use_gpu = false;
  trainer::DType precision = trainer::DType::kF32;
  int64_t epochs = 3;
  int64_t batch = 64;  // a worker
  double lr = 0.001;
  uint64_t seed = 1;
  int64_t hidden = 512;
  int64_t hidden_layers = 2;
  int64_t steps = 0;          // stop after so many; 0: all epochs
  int64_t train_samples = 0;  // the first N; 0: all
  int64_t test_samples = 0;   // the first N; 0: all
  std::string loss_log;       // a line a step; empty: none
  // Without cohort only.
  std::string storage_path;  // empty: results
  std::string restore;       // empty: from the start
};

// The exit code that --help or a bad command line asks for, after printing.
struct ExitNow {
  int code = 0;
};

// What `argv` says; checks values, and that the data directory is there.
std::variant<TrainOptions, ExitNow> ParseOptions(int argc, char** argv);

}  // namespace cohort::mlp
