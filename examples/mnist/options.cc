#include "examples/mnist/options.h"

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <limits>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
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

constexpr uint64_t kCountMax = 1'000'000'000'000;

std::string Quoted(const std::string& text) {
  return absl::StrCat("\"", text, "\"");
}

// CLI11's own conversion clamps and wraps numbers that do not fit.
CLI::Validator Whole(uint64_t least, uint64_t most) {
  const auto check = [least, most](const std::string& text) -> std::string {
    uint64_t number = 0;
    const bool is_one = absl::SimpleAtoi(text, &number);
    if (is_one && number >= least && number <= most) return "";
    return absl::StrCat(Quoted(text), " is no whole number from ", least,
                        " to ", most);
  };
  return CLI::Validator(check, "");
}

CLI::Validator Between(double least, double most) {
  const auto check = [least, most](const std::string& text) -> std::string {
    double number = 0;
    // So that NaN, which is neither less nor more, is refused too.
    const bool within =
        absl::SimpleAtod(text, &number) && number >= least && number <= most;
    if (within) return "";
    return absl::StrCat(Quoted(text), " is no number from ", least, " to ",
                        most);
  };
  return CLI::Validator(check, "");
}

template <typename Number>
void AddWhole(CLI::App& app, const char* name, Number& number, uint64_t least,
              uint64_t most, const char* what) {
  app.add_option(name, number, what)->check(Whole(least, most))->type_name("N");
}

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
  AddTrainingFlags(app, options);
  AddFileFlags(app, options);
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
