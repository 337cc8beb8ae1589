#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"

// What the examples that train on MNIST take alike.
namespace cohort::examples {

struct RunOptions {
  std::string data;  // directory of the idx files
  int64_t epochs = 3;
  int64_t batch = 64;  // a worker
  double lr = 0.001;
  uint64_t seed = 1;
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

void AddRunFlags(CLI::App& app, RunOptions& options);

// Parses `argv` by `app`, checks values, and that the data directory is there.
// Nothing when all is well.
std::optional<ExitNow> ParseRun(CLI::App& app, int argc, char** argv,
                                RunOptions& options);

}  // namespace cohort::examples
