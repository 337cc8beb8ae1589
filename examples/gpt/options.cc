#include "examples/gpt/options.h"

#include <filesystem>
#include <iostream>
#include <limits>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "examples/find_data.h"
#include "examples/flags.h"

namespace cohort::gpt {
namespace {

using examples::AddPath;
using examples::AddWhole;
using examples::ExitNow;
using examples::kCountMax;

constexpr int kExitUsage = 2;

void AddPrecision(CLI::App& app, Precision& precision) {
  const auto check = [](const std::string& name) -> std::string {
    if (name == "f32" || name == "bf16") return "";
    return absl::StrCat(examples::Quoted(name), " is neither f32 nor bf16");
  };
  const auto take = [&precision](const std::string& name) {
    precision = name == "bf16" ? Precision::kBF16 : Precision::kF32;
  };
  app.add_option_function<std::string>(
         "--dtype", take,
         "Of matrix products: f32 or bf16; weights and gradients are f32")
      ->check(CLI::Validator(check, ""))
      ->type_name("NAME");
}

void AddShapeFlags(CLI::App& app, GptShape& shape) {
  AddWhole(app, "--context", shape.context, 1, 65'536,
           "Bytes that are seen at once");
  AddWhole(app, "--width", shape.width, 1, 65'536, "Of a byte's vector");
  AddWhole(app, "--heads", shape.heads, 1, 1024,
           "Of the attention; they divide the width");
  AddWhole(app, "--layers", shape.layers, 1, 1024, "Blocks");
}

void AddTrainFlags(CLI::App& app, TrainOptions& options) {
  AddWhole(app, "--epochs", options.epochs, 1, 100'000, "Passes over the text");
  AddWhole(app, "--batch", options.batch, 1, 60'000,
           "Windows of the context's length a step and worker");
  app.add_option("--lr", options.lr, "Adam's learning rate")
      ->check(examples::Between(1e-12, 100))
      ->type_name("NUMBER");
  AddWhole(app, "--seed", options.seed, 0, std::numeric_limits<uint64_t>::max(),
           "Of weights, shuffles and the sample");
  AddWhole(app, "--steps", options.steps, 0, kCountMax,
           "Stop after so many steps; 0: after all epochs");
  AddWhole(app, "--checkpoint-every", options.checkpoint_every, 0, kCountMax,
           "Steps between checkpoints, besides each epoch's end");
  AddPath(app, "--loss-log", options.loss_log, "FILE",
          "Write each step's loss to this file, all digits");
  app.add_option("--prompt", options.prompt,
                 "What the sample at the end goes on from")
      ->type_name("TEXT");
  AddWhole(app, "--sample", options.sample, 0, 1'000'000,
           "Bytes of it; 0: none");
}

// What is wrong with values that are right by themselves; empty: nothing.
std::string Contradiction(TrainOptions& options) {
  if (options.shape.width % options.shape.heads != 0) {
    return absl::StrCat("--heads ", options.shape.heads,
                        " does not divide --width ", options.shape.width);
  }
  if (options.sample > 0 && options.prompt.empty()) {
    return "--prompt must have a byte to go on from";
  }
  if (!options.data.empty()) {
    std::error_code error;
    if (std::filesystem::is_regular_file(options.data, error)) return "";
    return absl::StrCat("--data ", options.data, " is no file");
  }
  const auto found = examples::FindData("text/moby-dick.txt.gz", "the text");
  if (!found.ok()) return std::string(found.status().message());
  options.data = *found;
  return "";
}

}  // namespace

std::variant<TrainOptions, ExitNow> ParseOptions(int argc, char** argv) {
  TrainOptions options;
  CLI::App app(
      "Trains a small GPT on the bytes of a text, data-parallel when cohort "
      "starts it, alone otherwise.",
      "gpt");
  examples::AddUseGpu(app, options.use_gpu);
  AddPath(app, "--data", options.data, "FILE",
          "The text, plain or gzip; else $COHORT_DATA/text/moby-dick.txt.gz, "
          "else found beside the program");
  AddPrecision(app, options.precision);
  AddShapeFlags(app, options.shape);
  AddTrainFlags(app, options);
  examples::AddSessionFlags(app, options);
  if (const auto exit_now = examples::ParseFlags(app, argc, argv)) {
    return *exit_now;
  }
  const std::string wrong = Contradiction(options);
  if (wrong.empty()) return options;
  std::cerr << "gpt: " << wrong << "\n";
  return ExitNow{kExitUsage};
}

}  // namespace cohort::gpt
