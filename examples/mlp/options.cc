#include "examples/mlp/options.h"

#include <iostream>
#include <limits>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"

#include "examples/flags.h"
#include "examples/mnist/data_directory.h"

namespace cohort::mlp {
namespace {

using examples::AddWhole;
using examples::kCountMax;
using trainer::DType;

constexpr int kExitUsage = 2;

void AddPrecision(CLI::App& app, DType& precision) {
  const auto check = [](const std::string& name) -> std::string {
    if (name == "f32" || name == "bf16" || name == "fp16") return "";
    return absl::StrCat(examples::Quoted(name), " is none of f32, bf16, fp16");
  };
  const auto take = [&precision](const std::string& name) {
    precision = name == "f32"    ? DType::kF32
                : name == "bf16" ? DType::kBF16
                                 : DType::kF16;
  };
  app.add_option_function<std::string>(
         "--precision", take,
         "Of weights, activations and gradients: f32, bf16, or fp16 with a "
         "loss scale; the masters are f32")
      ->check(CLI::Validator(check, ""))
      ->type_name("NAME");
}

void AddTrainingFlags(CLI::App& app, TrainOptions& options) {
  app.add_flag("--use-gpu", options.use_gpu,
               "Compute on the GPU that this process was granted, and reduce "
               "over NCCL where it is there; else on the CPU");
  AddPrecision(app, options.precision);
  AddWhole(app, "--epochs", options.epochs, 1, 100'000, "Passes over the data");
  AddWhole(app, "--batch", options.batch, 1, 60'000,
           "Samples a step and worker");
  app.add_option("--lr", options.lr, "Adam's learning rate")
      ->check(examples::Between(1e-12, 100))
      ->type_name("NUMBER");
  AddWhole(app, "--seed", options.seed, 0, std::numeric_limits<uint64_t>::max(),
           "Of weights and shuffles");
  AddWhole(app, "--hidden", options.hidden, 1, 65'536,
           "Width of the hidden layers");
  AddWhole(app, "--layers", options.hidden_layers, 1, 64, "Hidden layers");
  AddWhole(app, "--steps", options.steps, 0, kCountMax,
           "Stop after so many steps; 0: after all epochs");
  AddWhole(app, "--train-samples", options.train_samples, 0, kCountMax,
           "Train on the first N images; 0: all");
  AddWhole(app, "--test-samples", options.test_samples, 0, kCountMax,
           "Test on the first N images; 0: all");
}

void AddFileFlags(CLI::App& app, TrainOptions& options) {
  const auto add = [&app](const char* name, std::string& path, const char* type,
                          const char* what) {
    app.add_option(name, path, what)->type_name(type);
  };
  add("--data", options.data, "DIR",
      "The MNIST idx files; else $COHORT_DATA/mnist, else found beside the "
      "program");
  add("--loss-log", options.loss_log, "FILE",
      "Write each step's loss to this file, all digits");
  add("--storage-path", options.storage_path, "DIR",
      "Where checkpoints go when run by hand (results); under cohort `cohort "
      "submit --storage-path` says it");
  add("--restore", options.restore, "DIR",
      "Checkpoint to go on from when run by hand; a job of cohort goes on "
      "from its own");
}

}  // namespace

std::variant<TrainOptions, ExitNow> ParseOptions(int argc, char** argv) {
  TrainOptions options;
  CLI::App app(
      "Trains dense layers on MNIST without LibTorch, on CPUs or GPUs, "
      "data-parallel when cohort starts it, alone otherwise.",
      "mlp");
  AddTrainingFlags(app, options);
  AddFileFlags(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return ExitNow{code == 0 ? 0 : kExitUsage};
  }
  const absl::StatusOr<std::string> data = mnist::FindData(options.data);
  if (!data.ok()) {
    std::cerr << "mlp: " << data.status().message() << "\n";
    return ExitNow{kExitUsage};
  }
  options.data = *data;
  return options;
}

}  // namespace cohort::mlp
