#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"

// What the examples take alike.
namespace cohort::examples {

// For runs without cohort only (open_session.h).
struct SessionOptions {
  std::string storage_path;  // empty: results
  std::string restore;       // empty: from the start
};

// Of those that train on MNIST.
struct RunOptions : SessionOptions {
  std::string data;  // directory of the idx files
  int64_t epochs = 3;
  int64_t batch = 64;  // a worker
  double lr = 0.001;
  uint64_t seed = 1;
  int64_t steps = 0;          // stop after so many; 0: all epochs
  int64_t train_samples = 0;  // the first N; 0: all
  int64_t test_samples = 0;   // the first N; 0: all
  std::string loss_log;       // a line a step; empty: none
};

// Of a command line that has to be changed.
inline constexpr int kExitUsage = 2;

// The exit code that --help or a bad command line asks for, after printing.
struct ExitNow {
  int code = 0;
};

void AddSessionFlags(CLI::App& app, SessionOptions& options);
void AddRunFlags(CLI::App& app, RunOptions& options);

// Parses `argv` by `app` and checks values.  Nothing when all is well.
std::optional<ExitNow> ParseFlags(CLI::App& app, int argc, char** argv);

// The same, and that the directory of MNIST is there.
std::optional<ExitNow> ParseRun(CLI::App& app, int argc, char** argv,
                                RunOptions& options);

}  // namespace cohort::examples
