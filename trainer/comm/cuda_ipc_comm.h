#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "trainer/comm/comm.h"
#include "trainer/comm/gpu_comm.h"
#include "trainer/comm/gpu_context.h"
#include "trainer/comm/shared_gpu.h"

namespace cohort::trainer {

// A communicator for ranks that all share one GPU: one kernel over the buffers
// of all ranks.  See docs/design/0006-ranks-of-one-gpu.md, whose CI-n are kept
// here.
//
// The bits are those of CPUs (CM-2, CI-1).
class CudaIpcComm final : public GpuComm {
 public:
  // Blocks until all ranks are connected.  UNAVAILABLE, ABORTED,
  // DEADLINE_EXCEEDED at `until`.
  static absl::StatusOr<std::unique_ptr<CudaIpcComm>> Connect(
      std::unique_ptr<GpuContext> context, absl::Duration until);
  ~CudaIpcComm() override;

  absl::StatusOr<std::span<std::byte>> Allocate(size_t bytes) override;
  // A bucket costs two meetings on the host, tens of microseconds,
  // in which its memory moves some 25 MiB: a small first one is all meeting.
  // Reckoned, not measured.
  BucketBytes bucket_bytes() const override;

 private:
  // Buffers that are served together: what fits a post.
  static constexpr size_t kRoundBuffers = 16;

  // Where a buffer lies: offset in a region of its rank.
  struct Spot {
    uint64_t region = 0;
    uint64_t offset = 0;
  };
  struct Post;
  // One buffer that is not of a region, and its copy in the stage.
  struct Staged {
    size_t index = 0;  // in the round
    Buffer buffer;
    std::byte* in_region = nullptr;
    // Host memory goes through here; null for other memory of the GPU.
    std::byte* pinned = nullptr;
  };
  struct Round {
    uint32_t index = 0;
    std::span<const Buffer> buffers = {};
    std::vector<Spot> spots = {};  // by buffer
    std::vector<Staged> staged = {};
  };
  // What the rank that leads has the GPU do.
  struct Program;

  CudaIpcComm(std::unique_ptr<GpuContext> context, std::string description);

  absl::Status RunUntil(const Call& call, absl::Duration until) override;
  absl::Status RunRound(const Call& call, Round round, absl::Duration until);

  // Before the ranks meet: all that is to be read is where it is read.
  absl::Status Prepare(Round& round, absl::Duration until);
  absl::Status PrepareStage(Round& round, absl::Duration until);
  absl::Status CopyIn(const Round& round, absl::Duration until);
  // After they have met again.
  absl::Status CopyOut(const Round& round, absl::Duration until);

  Post MakePost(const Call& call, const Round& round, bool is_ready) const;
  // Whether all ranks brought the same; all come to the same verdict.
  absl::Status Compare(const Call& call, const Post& mine,
                       std::span<const Post> posts) const;
  // Tells the peers of regions that they have not heard of.
  absl::Status Announce(const Call& call, std::span<const Post> posts,
                        absl::Duration until);

  // The rank that has the GPU work for the others, this call: each in turn.
  int LeaderOf(const Call& call) const;
  absl::StatusOr<Program> Plan(const Call& call, const Round& round,
                               std::span<const Post> posts) const;
  void PlanReduction(const Call& call, const Buffer& buffer,
                     const std::vector<SharedGpu::Place>& places,
                     Program& program) const;
  static void PlanBroadcast(const Call& call, const Buffer& buffer,
                            const std::vector<SharedGpu::Place>& places,
                            Program& program);
  static void PlanGather(const Buffer& buffer,
                         const std::vector<SharedGpu::Place>& places,
                         Program& program);
  absl::StatusOr<SharedGpu::Place> PlaceOf(int rank, const Spot& spot) const;
  absl::Status Lead(const Call& call, const Round& round,
                    std::span<const Post> posts, absl::Duration until);

  std::vector<SharedGpu::Region> regions_;
  // Of the ranks' regions that all have heard of, by rank.
  std::vector<std::vector<cuda::IpcMemoryHandle>> announced_;
  size_t stage_region_ = 0;  // index, once stage_bytes_ > 0
  size_t stage_bytes_ = 0;
};

}  // namespace cohort::trainer
