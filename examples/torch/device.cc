#include "examples/torch/device.h"

#include "common/status_macros.h"
#include "common/status_util.h"
#include "trainer/torch/gpu.h"

namespace cohort::examples {

absl::StatusOr<torch::Device> OpenDevice(bool use_gpu) {
  if (!use_gpu) return torch::Device(torch::kCPU);
  const HangGuard guard("--use-gpu: opening the GPU",
                        torch_adapter::kPassPatience);
  const auto gpu = torch_adapter::OpenGpu();
  if (!gpu.ok()) return Annotate(gpu.status(), "--use-gpu");
  return *gpu;
}

absl::StatusOr<double> ReadLoss(const torch::Tensor& loss) {
  double value = 0;
  COHORT_RETURN_IF_ERROR(torch_adapter::CatchTorch([&] {
    value = loss.item<double>();
    return absl::OkStatus();
  }));
  return value;
}

}  // namespace cohort::examples
