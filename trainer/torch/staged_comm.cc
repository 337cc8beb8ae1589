#include "trainer/torch/staged_comm.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "torch/utils.h"

#include "common/real_clock.h"
#include "common/round_up.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "trainer/torch/device_memory.h"
#include "trainer/torch/torch_status.h"

namespace cohort::torch_adapter {
namespace {

using trainer::Buffer;

constexpr size_t kLineBytes = 64;

torch::Tensor BytesAt(void* memory, size_t bytes, torch::Device device) {
  return TensorAt(static_cast<std::byte*>(memory),
                  {static_cast<int64_t>(bytes)}, torch::kUInt8, device);
}

}  // namespace

StagedComm::StagedComm(torch::Device device, trainer::Comm& host)
    : Comm({.rank = host.rank(), .world = host.world(), .epoch = host.epoch()}),
      device_(device),
      host_(host) {}

absl::StatusOr<std::span<std::byte>> StagedComm::Allocate(size_t bytes) {
  torch::Tensor memory;
  COHORT_RETURN_IF_ERROR(Annotate(
      CatchTorch([&] {
        memory = torch::zeros(
            {static_cast<int64_t>(bytes)},
            torch::TensorOptions().dtype(torch::kUInt8).device(device_));
        return absl::OkStatus();
      }),
      absl::StrCat(device_.str(), ": allocating ", bytes, " bytes")));
  memory_.push_back(memory);
  return std::span(static_cast<std::byte*>(memory.data_ptr()), bytes);
}

absl::Status StagedComm::Zero(std::span<std::byte> memory) {
  return CatchTorch([&] {
    BytesAt(memory.data(), memory.size(), device_).zero_();
    return absl::OkStatus();
  });
}

absl::Status StagedComm::Run(const Call& call) {
  if (world() == 1) return absl::OkStatus();
  const MachineClock clock;
  const absl::Duration until = clock.Monotonic() + call.deadline;
  absl::StatusOr<std::vector<Buffer>> staged = Stage(call.buffers);
  absl::Status ready = staged.status();
  if (ready.ok()) ready = Copy(*staged, torch::kCPU, call.buffers, device_);
  if (!ready.ok()) {
    // Peers would wait for this rank until their deadline.
    host_.Revoke();
    return ready;
  }
  const absl::Duration left = until - clock.Monotonic();
  COHORT_RETURN_IF_ERROR(DoOnHost(call, *staged, left));
  return Copy(call.buffers, device_, *staged, torch::kCPU);
}

absl::Status StagedComm::DoOnHost(const Call& call,
                                  std::span<const Buffer> staged,
                                  absl::Duration left) {
  switch (call.kind) {
    case Kind::kAllReduce:
      return host_.AllReduce(staged, call.op, left);
    case Kind::kReduceScatter:
      return host_.ReduceScatter(staged, call.op, left);
    case Kind::kAllGather:
      return host_.AllGather(staged, left);
    case Kind::kBroadcast:
      return host_.Broadcast(staged, call.root, left);
    case Kind::kBarrier:
    case Kind::kLeave:
      break;
  }
  return host_.Barrier(left);
}

absl::StatusOr<std::vector<Buffer>> StagedComm::Stage(
    std::span<const Buffer> buffers) {
  size_t bytes = 0;
  for (const Buffer& buffer : buffers) {
    bytes += RoundUp(buffer.bytes(), kLineBytes);
  }
  if (bytes > staging_.size()) {
    // The one before it stays with the communicator.
    COHORT_ASSIGN_OR_RETURN(
        staging_, host_.Allocate(std::max(bytes, 2 * staging_.size())));
  }
  std::vector<Buffer> staged(buffers.begin(), buffers.end());
  std::byte* at = staging_.data();
  for (Buffer& buffer : staged) {
    buffer.data = at;
    at += RoundUp(buffer.bytes(), kLineBytes);
  }
  return staged;
}

absl::Status StagedComm::Copy(std::span<const Buffer> to,
                              torch::Device to_device,
                              std::span<const Buffer> from,
                              torch::Device from_device) {
  return Annotate(
      CatchTorch([&] {
        for (size_t i = 0; i < to.size(); ++i) {
          BytesAt(to[i].data, to[i].bytes(), to_device)
              .copy_(BytesAt(from[i].data, from[i].bytes(), from_device));
        }
        return absl::OkStatus();
      }),
      absl::StrCat(device_.str(), ": copying through the host"));
}

}  // namespace cohort::torch_adapter
