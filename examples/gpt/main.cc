#include "examples/gpt/options.h"
#include "examples/gpt/program.h"
#include "examples/program.h"

int main(int argc, char** argv) {
  return cohort::examples::RunProgram(
      "gpt", argc, argv, cohort::gpt::ParseOptions, cohort::gpt::Train);
}
