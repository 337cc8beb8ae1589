#include "examples/gpt/options.h"
#include "examples/gpt/training.h"
#include "examples/program.h"
#include "examples/torch/training_program.h"

int main(int argc, char** argv) {
  using cohort::gpt::ParseOptions;
  using cohort::gpt::Training;
  using cohort::gpt::TrainOptions;
  return cohort::examples::RunProgram(
      "gpt", argc, argv, ParseOptions,
      cohort::examples::TrainOnTorch<Training, TrainOptions>);
}
