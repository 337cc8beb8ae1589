#include "examples/mnist/options.h"

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cohort::mnist {
namespace {

namespace fs = std::filesystem;

constexpr int kExitUsage = 2;
constexpr char kProbe[] = "train-images-idx3-ubyte.gz";

bool HasData(const fs::path& directory) {
  std::error_code error;
  return fs::exists(directory / kProbe, error);
}

void AddFlags(CLI::App& app, TrainOptions& options) {
  app.add_option("--data", options.data,
                 "Directory of the MNIST idx files; else $COHORT_DATA/mnist, "
                 "else found beside the program");
  app.add_option("--epochs", options.epochs, "Passes over the data")
      ->check(CLI::Range(int64_t{1}, int64_t{100000}));
  app.add_option("--batch", options.batch, "Samples a step and worker")
      ->check(CLI::Range(int64_t{1}, int64_t{60000}));
  app.add_option("--lr", options.lr, "Adam's learning rate")
      ->check(CLI::Range(1e-12, 100.0));
  app.add_option("--seed", options.seed, "Of weights and shuffles");
  static const std::map<std::string, Precision> kPrecisions = {
      {"float32", Precision::kFloat32}, {"float64", Precision::kFloat64}};
  app.add_option("--dtype", options.precision, "float32 or float64")
      ->transform(CLI::CheckedTransformer(kPrecisions));
  app.add_option("--channels", options.shape.channels,
                 "Channels of the convolution")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}));
  app.add_option("--hidden", options.shape.hidden, "Width of the dense layer")
      ->check(CLI::Range(int64_t{1}, int64_t{65536}));
  app.add_option("--steps", options.steps, "Stop after so many steps")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--train-samples", options.train_samples,
                 "Train on the first N images")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--test-samples", options.test_samples,
                 "Test on the first N images")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--checkpoint-every", options.checkpoint_every,
                 "Steps between checkpoints, besides each epoch's end")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--svg", options.svg, "Write the loss curve to this file");
  app.add_option("--loss-log", options.loss_log,
                 "Write each step's loss to this file, all digits");
  app.add_option("--storage-path", options.storage_path,
                 "Where checkpoints go when run by hand");
  app.add_option("--restore", options.restore,
                 "Checkpoint to go on from when run by hand");
  app.add_option("--evaluate", options.evaluate,
                 "Print this checkpoint's test accuracy and exit");
}

fs::path ProgramDirectory() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path() : program.parent_path();
}

}  // namespace

absl::StatusOr<std::string> FindData() {
  std::vector<std::string> looked;
  const auto found = [&looked](const fs::path& directory) {
    looked.push_back(directory.string());
    return HasData(directory);
  };
  if (const char* data = std::getenv("COHORT_DATA")) {
    const fs::path directory = fs::path(data) / "mnist";
    if (found(directory)) return directory.string();
  }
  constexpr int kLevels = 5;  // <tree>/build/release/bin is three deep
  fs::path above = ProgramDirectory();
  for (int level = 0; level < kLevels && !above.empty(); ++level) {
    for (const char* place : {"data/mnist", "share/cohort/data/mnist"}) {
      if (found(above / place)) return (above / place).string();
    }
    if (above == above.parent_path()) break;
    above = above.parent_path();
  }
  return absl::NotFoundError(
      absl::StrCat("MNIST is in none of ", absl::StrJoin(looked, ", "),
                   "; give --data DIR or set COHORT_DATA"));
}

std::variant<TrainOptions, ExitNow> ParseOptions(int argc, char** argv) {
  TrainOptions options;
  CLI::App app(
      "Trains a small convolutional network on MNIST, data-parallel when "
      "cohort starts it, alone otherwise.",
      "mnist");
  AddFlags(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return ExitNow{code == 0 ? 0 : kExitUsage};
  }
  if (options.data.empty()) {
    const absl::StatusOr<std::string> data = FindData();
    if (!data.ok()) {
      std::cerr << "mnist: " << data.status().message() << "\n";
      return ExitNow{kExitUsage};
    }
    options.data = *data;
  } else if (!HasData(options.data)) {
    std::cerr << "mnist: --data " << options.data << " has no " << kProbe
              << "\n";
    return ExitNow{kExitUsage};
  }
  return options;
}

}  // namespace cohort::mnist
