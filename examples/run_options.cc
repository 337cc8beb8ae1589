#include "examples/run_options.h"

#include <iostream>
#include <limits>

#include "absl/status/statusor.h"

#include "examples/flags.h"
#include "examples/mnist_directory.h"

namespace cohort::examples {

void AddSessionFlags(CLI::App& app, SessionOptions& options) {
  AddPath(app, "--storage-path", options.storage_path, "DIR",
          "Where checkpoints go when run by hand (results); under cohort "
          "`cohort submit --storage-path` says it");
  AddPath(app, "--restore", options.restore, "DIR",
          "Checkpoint to go on from when run by hand; a job of cohort goes on "
          "from its own");
}

void AddRunFlags(CLI::App& app, RunOptions& options) {
  AddWhole(app, "--epochs", options.epochs, 1, 100'000, "Passes over the data");
  AddWhole(app, "--batch", options.batch, 1, 60'000,
           "Samples a step and worker");
  app.add_option("--lr", options.lr, "Adam's learning rate")
      ->check(Between(1e-12, 100))
      ->type_name("NUMBER");
  AddWhole(app, "--seed", options.seed, 0, std::numeric_limits<uint64_t>::max(),
           "Of weights and shuffles");
  AddWhole(app, "--steps", options.steps, 0, kCountMax,
           "Stop after so many steps; 0: after all epochs");
  AddWhole(app, "--train-samples", options.train_samples, 0, kCountMax,
           "Train on the first N images; 0: all");
  AddWhole(app, "--test-samples", options.test_samples, 0, kCountMax,
           "Test on the first N images; 0: all");
  AddPath(app, "--data", options.data, "DIR",
          "The MNIST idx files; else $COHORT_DATA/mnist, else found beside the "
          "program");
  AddPath(app, "--loss-log", options.loss_log, "FILE",
          "Write each step's loss to this file, all digits");
  AddSessionFlags(app, options);
}

std::optional<ExitNow> ParseFlags(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return ExitNow{code == 0 ? 0 : kExitUsage};
  }
  return std::nullopt;
}

std::optional<ExitNow> ParseRun(CLI::App& app, int argc, char** argv,
                                RunOptions& options) {
  if (const auto exit_now = ParseFlags(app, argc, argv)) return exit_now;
  const absl::StatusOr<std::string> data = examples::FindMnist(options.data);
  if (!data.ok()) {
    std::cerr << app.get_name() << ": " << data.status().message() << "\n";
    return ExitNow{kExitUsage};
  }
  options.data = *data;
  return std::nullopt;
}

}  // namespace cohort::examples
