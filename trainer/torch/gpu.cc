#include "trainer/torch/gpu.h"

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "absl/strings/str_cat.h"
#include "torch/version.h"

#include "common/status_macros.h"
#include "trainer/cuda/device.h"
#include "trainer/torch/process.h"
#include "trainer/torch/torch_status.h"

namespace cohort::torch_adapter {

absl::StatusOr<torch::Device> OpenGpu() {
  if (!at::globalContext().hasCUDART()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "this program's LibTorch ", TORCH_VERSION,
        " is for CPUs: build against one for CUDA, as a torch wheel holds it "
        "(-DCOHORT_TORCH_DIR=.../site-packages/torch; docs/gpu.md)"));
  }
  torch::Device device(torch::kCUDA);
  COHORT_RETURN_IF_ERROR(CatchTorch([&device] {
    const int ordinal = trainer::cuda::VisibleOrdinal(0);
    const c10::impl::VirtualGuardImpl guard(torch::kCUDA);
    const int count = guard.deviceCount();
    if (ordinal >= count) {
      return absl::FailedPreconditionError(absl::StrCat(
          "LibTorch ", TORCH_VERSION, " finds ", count, " GPUs, and number ",
          ordinal,
          " was wanted: look at nvidia-smi for a driver that is missing or too "
          "old, and ask for a GPU with `cohort submit --use-gpu`"));
    }
    device =
        torch::Device(torch::kCUDA, static_cast<torch::DeviceIndex>(ordinal));
    guard.setDevice(device);
    guard.exchangeStream(guard.getStreamFromGlobalPool(device));
    return absl::OkStatus();
  }));
  PrepareForGpu();
  return device;
}

}  // namespace cohort::torch_adapter
