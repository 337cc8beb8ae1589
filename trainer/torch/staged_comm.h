#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torch/types.h"

#include "trainer/comm/comm.h"

namespace cohort::torch_adapter {

// A communicator for a module on a device whose ranks can reduce on the host
// only: memory is LibTorch's there, and every call copies to the host's,
// reduces by `host`, and copies back.  Slower than one of the GPUs' own, and
// the same bits as on CPUs.  In a gang of one every call is over at once.
//
// Copies go through the current stream, behind what was begun there.
// Thread-compatible.
class StagedComm final : public trainer::Comm {
 public:
  // `host` must outlive it, and is its own until then.
  StagedComm(torch::Device device, trainer::Comm& host);

  // INTERNAL is LibTorch's error, such as a lack of memory.
  absl::StatusOr<std::span<std::byte>> Allocate(size_t bytes) override;
  bool allocates_on_device() const override { return true; }
  trainer::BucketBytes bucket_bytes() const override {
    return host_.bucket_bytes();
  }
  absl::Status Zero(std::span<std::byte> memory) override;
  absl::Status CheckPeers() const override { return host_.CheckPeers(); }
  void Revoke() override { host_.Revoke(); }

 private:
  absl::Status Run(const Call& call) override;
  absl::Status DoOnHost(const Call& call,
                        std::span<const trainer::Buffer> staged,
                        absl::Duration left);
  // As many bytes, each buffer on a line of its own.
  absl::StatusOr<std::vector<trainer::Buffer>> Stage(
      std::span<const trainer::Buffer> buffers);
  absl::Status Copy(std::span<const trainer::Buffer> to,
                    torch::Device to_device,
                    std::span<const trainer::Buffer> from,
                    torch::Device from_device);

  const torch::Device device_;
  trainer::Comm& host_;
  std::vector<torch::Tensor> memory_;
  std::span<std::byte> staging_;  // host_'s
};

}  // namespace cohort::torch_adapter
