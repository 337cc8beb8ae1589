#include "trainer/torch/device_memory.h"

#include <ATen/ops/from_blob.h>

namespace cohort::torch_adapter {

torch::Tensor TensorAt(std::byte* memory, torch::IntArrayRef sizes,
                       torch::ScalarType type, torch::Device device) {
  // target_device: the device is known here, LibTorch need not ask the driver
  // about memory that it did not allocate.
  return at::for_blob(memory, sizes)
      .options(torch::TensorOptions().dtype(type).device(device))
      .target_device(device)
      .make_tensor();
}

torch::Tensor Upload(const torch::Tensor& host, torch::Device device) {
  if (device.is_cpu()) return host;
  return host.pin_memory().to(torch::TensorOptions(device),
                              /*non_blocking=*/true);
}

}  // namespace cohort::torch_adapter
