#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torch/types.h"

#include "trainer/comm/comm.h"

namespace cohort::torch_adapter {

// The communicator of a gang of one whose module is on a device: every
// operation is over at once, and memory is LibTorch's there. Thread-compatible.
class DeviceLocalComm final : public trainer::Comm {
 public:
  explicit DeviceLocalComm(torch::Device device)
      : Comm({.rank = 0, .world = 1, .epoch = 1}), device_(device) {}

  // INTERNAL is LibTorch's error, such as a lack of memory.
  absl::StatusOr<std::span<std::byte>> Allocate(size_t bytes) override;
  bool allocates_on_device() const override { return true; }
  absl::Status Zero(std::span<std::byte> memory) override;
  // Nobody waits; nothing to do.
  void Revoke() override {}

 private:
  absl::Status Run(const Call&) override { return absl::OkStatus(); }

  const torch::Device device_;
  std::vector<torch::Tensor> memory_;
};

}  // namespace cohort::torch_adapter
