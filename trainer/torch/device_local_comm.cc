#include "trainer/torch/device_local_comm.h"

#include "torch/utils.h"

#include "common/status_macros.h"
#include "trainer/torch/device_memory.h"
#include "trainer/torch/torch_status.h"

namespace cohort::torch_adapter {

absl::StatusOr<std::span<std::byte>> DeviceLocalComm::Allocate(size_t bytes) {
  torch::Tensor memory;
  COHORT_RETURN_IF_ERROR(CatchTorch([&] {
    memory = torch::zeros(
        {static_cast<int64_t>(bytes)},
        torch::TensorOptions().dtype(torch::kUInt8).device(device_));
    return absl::OkStatus();
  }));
  memory_.push_back(memory);
  return std::span(static_cast<std::byte*>(memory.data_ptr()), bytes);
}

absl::Status DeviceLocalComm::Zero(std::span<std::byte> memory) {
  return CatchTorch([&] {
    TensorAt(memory.data(), {static_cast<int64_t>(memory.size())},
             torch::kUInt8, device_)
        .zero_();
    return absl::OkStatus();
  });
}

}  // namespace cohort::torch_adapter
