#include "examples/gpt/program.h"

#include "examples/gpt/training.h"
#include "examples/torch/training_program.h"

namespace cohort::gpt {

absl::Status Train(const TrainOptions& options) {
  return examples::TrainOnTorch<Training>(options);
}

}  // namespace cohort::gpt
