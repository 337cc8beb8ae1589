#include "trainer/torch/training_device.h"

#include "common/status_macros.h"
#include "common/status_util.h"
#include "trainer/torch/gpu.h"

namespace cohort::torch_adapter {

absl::StatusOr<torch::Device> OpenDevice(bool use_gpu) {
  if (!use_gpu) return torch::Device(torch::kCPU);
  const trainer::HangGuard guard("--use-gpu: opening the GPU", kPassTimeout);
  const auto gpu = OpenGpu();
  if (!gpu.ok()) return Annotate(gpu.status(), "--use-gpu");
  return *gpu;
}

absl::StatusOr<double> ReadLoss(const torch::Tensor& loss) {
  double value = 0;
  COHORT_RETURN_IF_ERROR(CatchTorch([&] {
    value = loss.item<double>();
    return absl::OkStatus();
  }));
  return value;
}

}  // namespace cohort::torch_adapter
