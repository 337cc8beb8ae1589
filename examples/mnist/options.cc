#include "examples/mnist/options.h"

#include <iostream>
#include <limits>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"

#include "examples/flags.h"
#include "examples/mnist/data_directory.h"

namespace cohort::mnist {
namespace {

using examples::AddWhole;
using examples::Between;
using examples::kCountMax;
using examples::Quoted;

constexpr int kExitUsage = 2;

void AddPrecision(CLI::App& app, Precision& precision) {
  const auto check = [](const std::string& name) -> std::string {
    if (name == "float32" || name == "float64") return "";
    return absl::StrCat(Quoted(name), " is neither float32 nor float64");
  };
  const auto take = [&precision](const std::string& name) {
    precision = name == "float64" ? Precision::kFloat64 : Precision::kFloat32;
  };
  app.add_option_function<std::string>("--dtype", take, "float32 or float64")
      ->check(CLI::Validator(check, ""))
      ->type_name("NAME");
}

void AddTrainingFlags(CLI::App& app, TrainOptions& options) {
  AddWhole(app, "--epochs", options.epochs, 1, 100'000, "Passes over the data");
  AddWhole(app, "--batch", options.batch, 1, 60'000,
           "Samples a step and worker");
  app.add_option("--lr", options.lr, "Adam's learning rate")
      ->check(Between(1e-12, 100))
      ->type_name("NUMBER");
  AddWhole(app, "--seed", options.seed, 0, std::numeric_limits<uint64_t>::max(),
           "Of weights and shuffles");
  AddPrecision(app, options.precision);
  AddWhole(app, "--channels", options.shape.channels, 1, 4096,
           "Channels of the convolution");
  AddWhole(app, "--hidden", options.shape.hidden, 1, 65'536,
           "Width of the dense layer");
  AddWhole(app, "--steps", options.steps, 0, kCountMax,
           "Stop after so many steps; 0: after all epochs");
  AddWhole(app, "--train-samples", options.train_samples, 0, kCountMax,
           "Train on the first N images; 0: all");
  AddWhole(app, "--test-samples", options.test_samples, 0, kCountMax,
           "Test on the first N images; 0: all");
  AddWhole(app, "--checkpoint-every", options.checkpoint_every, 0, kCountMax,
           "Steps between checkpoints, besides each epoch's end");
}

void AddFileFlags(CLI::App& app, TrainOptions& options) {
  const auto add = [&app](const char* name, std::string& path, const char* type,
                          const char* what) {
    app.add_option(name, path, what)->type_name(type);
  };
  add("--data", options.data, "DIR",
      "The MNIST idx files; else $COHORT_DATA/mnist, else found beside the "
      "program");
  add("--svg", options.svg, "FILE", "Write the loss curve to this file");
  add("--loss-log", options.loss_log, "FILE",
      "Write each step's loss to this file, all digits");
  add("--storage-path", options.storage_path, "DIR",
      "Where checkpoints go when run by hand (results); under cohort `cohort "
      "submit --storage-path` says it");
  add("--restore", options.restore, "DIR",
      "Checkpoint to go on from when run by hand; a job of cohort goes on "
      "from its own");
  add("--evaluate", options.evaluate, "DIR",
      "Print this checkpoint's test accuracy and exit");
}

}  // namespace

std::variant<TrainOptions, ExitNow> ParseOptions(int argc, char** argv) {
  TrainOptions options;
  CLI::App app(
      "Trains a small convolutional network on MNIST, data-parallel when "
      "cohort starts it, alone otherwise.",
      "mnist");
  AddTrainingFlags(app, options);
  AddFileFlags(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return ExitNow{code == 0 ? 0 : kExitUsage};
  }
  const absl::StatusOr<std::string> data = FindData(options.data);
  if (!data.ok()) {
    std::cerr << "mnist: " << data.status().message() << "\n";
    return ExitNow{kExitUsage};
  }
  options.data = *data;
  return options;
}

}  // namespace cohort::mnist
