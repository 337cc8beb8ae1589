#pragma once

#include <cstddef>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "trainer/comm/comm.h"
#include "trainer/comm/gpu_comm.h"
#include "trainer/comm/gpu_context.h"
#include "trainer/comm/nccl_communicator.h"
#include "trainer/comm/nccl_library.h"
#include "trainer/comm/owner_thread.h"

namespace cohort::trainer {

// A communicator over NCCL, for ranks with a GPU each.
class NcclComm final : public GpuComm {
 public:
  // Blocks until all ranks are connected.  `id` is rank 0's, for this epoch
  // (NC-8).  UNAVAILABLE, ABORTED, DEADLINE_EXCEEDED at `until`.
  static absl::StatusOr<std::unique_ptr<NcclComm>> Connect(
      std::unique_ptr<GpuContext> context, const nccl::UniqueId& id,
      absl::Duration until);
  ~NcclComm() override;

  absl::StatusOr<std::span<std::byte>> Allocate(size_t bytes) override;

 private:
  using Stage = NcclCommunicator::Stage;
  using Collective = NcclCommunicator::Collective;

  // A call's buffers, where the GPU reaches them.
  struct Prepared {
    Collective collective;
    // The caller's, in the order in which they lie in the stage.
    std::vector<Buffer> staged = {};
    Stage stage;
  };

  NcclComm(std::unique_ptr<GpuContext> context, std::string description);

  absl::Status RunUntil(const Call& call, absl::Duration until) override;
  absl::StatusOr<Prepared> Prepare(const Call& call, absl::Duration until);
  bool IsAllocated(const Buffer& buffer) const;
  std::shared_ptr<OwnerThread::Job> Launch(const Prepared& prepared);
  // Compares what all ranks bring.
  absl::Status Meet(const Call& call, absl::Duration until, bool is_ready,
                    bool is_launched);

  // From Allocate, by address.
  std::vector<std::span<std::byte>> allocated_;
  // Shapes that all ranks agreed on.
  std::set<std::string> agreed_;
};

}  // namespace cohort::trainer
