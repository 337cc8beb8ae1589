#include "examples/mlp/options.h"

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"

#include "examples/flags.h"

namespace cohort::mlp {
namespace {

using examples::AddWhole;
using trainer::DType;

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

}  // namespace

std::variant<TrainOptions, examples::ExitNow> ParseOptions(int argc,
                                                           char** argv) {
  TrainOptions options;
  CLI::App app(
      "Trains dense layers on MNIST without LibTorch, on CPUs or GPUs, "
      "data-parallel when cohort starts it, alone otherwise.",
      "mlp");
  examples::AddUseGpu(app, options.use_gpu);
  AddPrecision(app, options.precision);
  examples::AddRunFlags(app, options);
  AddWhole(app, "--hidden", options.hidden, 1, 65'536,
           "Width of the hidden layers");
  AddWhole(app, "--layers", options.hidden_layers, 1, 64, "Hidden layers");
  if (const auto exit_now = examples::ParseRun(app, argc, argv, options)) {
    return *exit_now;
  }
  return options;
}

}  // namespace cohort::mlp
