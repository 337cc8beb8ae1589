#include "examples/mnist/options.h"
#include "examples/mnist/program.h"
#include "examples/program.h"

int main(int argc, char** argv) {
  return cohort::examples::RunProgram("mnist", argc, argv,
                                      cohort::mnist::ParseOptions,
                                      cohort::mnist::TrainOrEvaluate);
}
