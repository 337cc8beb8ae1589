#include "examples/mnist/program.h"

#include "absl/status/statusor.h"

#include "common/status_macros.h"
#include "examples/mnist/evaluation.h"
#include "examples/mnist/training.h"
#include "examples/torch/device.h"
#include "examples/torch/training_program.h"
#include "trainer/torch/process.h"

namespace cohort::mnist {

absl::Status TrainOrEvaluate(const TrainOptions& options) {
  if (options.evaluate.empty()) {
    return examples::TrainOnTorch<Training>(options);
  }
  torch_adapter::PrepareProcess();
  COHORT_ASSIGN_OR_RETURN(const torch::Device device,
                          examples::OpenDevice(options.use_gpu));
  return Evaluate(options, device);
}

}  // namespace cohort::mnist
