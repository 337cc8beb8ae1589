#include "examples/torch/device.h"

#include "common/status_macros.h"
#include "trainer/torch/torch_status.h"

namespace cohort::examples {

absl::StatusOr<double> ReadLoss(const torch::Tensor& loss) {
  double value = 0;
  COHORT_RETURN_IF_ERROR(torch_adapter::CatchTorch([&] {
    value = loss.item<double>();
    return absl::OkStatus();
  }));
  return value;
}

}  // namespace cohort::examples
