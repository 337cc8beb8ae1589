#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/status_macros.h"
#include "examples/mnist/evaluation.h"
#include "examples/mnist/options.h"
#include "examples/mnist/training.h"
#include "examples/program.h"
#include "examples/torch/device.h"
#include "examples/torch/training_program.h"
#include "trainer/torch/process.h"

namespace cohort::mnist {
namespace {

absl::Status TrainOrEvaluate(const TrainOptions& options) {
  if (options.evaluate.empty()) {
    return examples::TrainOnTorch<Training>(options);
  }
  torch_adapter::PrepareProcess();
  COHORT_ASSIGN_OR_RETURN(const torch::Device device,
                          examples::OpenDevice(options.use_gpu));
  return Evaluate(options, device);
}

}  // namespace
}  // namespace cohort::mnist

int main(int argc, char** argv) {
  return cohort::examples::RunProgram("mnist", argc, argv,
                                      cohort::mnist::ParseOptions,
                                      cohort::mnist::TrainOrEvaluate);
}
