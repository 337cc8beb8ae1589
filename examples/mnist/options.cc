#include "examples/mnist/options.h"

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"

#include "examples/flags.h"

namespace cohort::mnist {
namespace {

using examples::AddWhole;
using examples::kCountMax;
using examples::Quoted;

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

}  // namespace

std::variant<TrainOptions, examples::ExitNow> ParseOptions(int argc,
                                                           char** argv) {
  TrainOptions options;
  CLI::App app(
      "Trains a small convolutional network on MNIST, data-parallel when "
      "cohort starts it, alone otherwise.",
      "mnist");
  examples::AddUseGpu(app, options.use_gpu);
  examples::AddRunFlags(app, options);
  AddPrecision(app, options.precision);
  AddWhole(app, "--channels", options.shape.channels, 1, 4096,
           "Channels of the convolution");
  AddWhole(app, "--hidden", options.shape.hidden, 1, 65'536,
           "Width of the dense layer");
  AddWhole(app, "--checkpoint-every", options.checkpoint_every, 0, kCountMax,
           "Steps between checkpoints, besides each epoch's end");
  examples::AddPath(app, "--svg", options.svg, "FILE",
                    "Write the loss curve to this file");
  examples::AddPath(app, "--evaluate", options.evaluate, "DIR",
                    "Print this checkpoint's test accuracy and exit");
  if (const auto exit_now = examples::ParseRun(app, argc, argv, options)) {
    return *exit_now;
  }
  return options;
}

}  // namespace cohort::mnist
