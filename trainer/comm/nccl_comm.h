#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "trainer/comm/comm.h"
#include "trainer/comm/nccl_communicator.h"
#include "trainer/comm/nccl_library.h"
#include "trainer/comm/owner_thread.h"
#include "trainer/cuda/driver.h"

namespace cohort::trainer {

struct NcclCommOptions {
  // What this rank found.  A reason that it has none is told to all ranks.
  absl::StatusOr<std::shared_ptr<const cuda::DriverTable>> driver =
      absl::FailedPreconditionError("no CUDA driver");
  absl::StatusOr<std::shared_ptr<const nccl::Library>> nccl =
      absl::FailedPreconditionError("no NCCL");
  // Of the GPUs that this process sees.
  int device = 0;
  // To find all peers and connect to them.
  absl::Duration connect_deadline = absl::Seconds(60);
  NcclDeadlines deadlines = {};
  // The last rung: what to do when a call of NCCL or CUDA does not come back.
  // Unset: SIGKILL to this process, since nothing less frees the GPU.
  std::function<void(absl::string_view why)> kill = nullptr;
};

// The reason (common/status_util.h) of a gang that cannot use NCCL.
inline constexpr char kNcclUnusable[] = "nccl_unusable";

// The driver and the NCCL of this machine, for the first GPU that this process
// may use; the reason when CUDA_VISIBLE_DEVICES, as a rank has it, names none.
NcclCommOptions NcclOfThisMachine();

// A communicator over NCCL, for ranks with a GPU each.
//
// NCCL moves the data, `control` (any communicator of the same ranks and epoch,
// in shared memory or over a network) says who came, what they bring and who is
// gone: see docs/design/0005-gpu-collectives.md, whose NC-n are kept here.
//
// Memory from Allocate is the GPU's.  Buffers may be such memory, other memory
// of the GPU, or the host's, which is staged.  Work that fills a buffer must be
// on the legacy default stream or over.  After ABORTED and DEADLINE_EXCEEDED
// the GPU may write to a buffer that is not the host's until the destructor
// returns, which takes at most about two seconds.
class NcclComm final : public Comm {
 public:
  // Blocks until all ranks are connected.  `control` must outlive the
  // communicator, and is its own from now on; `exchange` is used during the
  // call only.
  //
  // FAILED_PRECONDITION for the reason kNcclUnusable on all ranks alike, naming
  // the rank that cannot, when they cannot use NCCL: no driver, no NCCL, two
  // ranks on one GPU, different versions; `control` is the caller's again then.
  // Else UNAVAILABLE, ABORTED, DEADLINE_EXCEEDED, and errors of `exchange`.
  static absl::StatusOr<std::unique_ptr<NcclComm>> Connect(
      NcclCommOptions options, Comm& control, Exchange& exchange);
  ~NcclComm() override;

  // "NCCL 2.28.9 on GPU-... (NVIDIA H200)"
  const std::string& description() const { return description_; }

  absl::StatusOr<std::span<std::byte>> Allocate(size_t bytes) override;
  bool allocates_on_device() const override { return true; }
  absl::Status Zero(std::span<std::byte> memory) override;
  absl::Status CheckPeers() const override;
  // All ranks, as far as `control` reaches them.
  void Revoke() override;

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

  NcclComm(const Identity& identity, NcclCommOptions options, Comm& control);

  absl::Status ConnectUntil(absl::Duration until, Exchange& exchange);

  absl::Status Run(const Call& call) override;
  absl::Status RunUntil(const Call& call, absl::Duration until);
  absl::StatusOr<Prepared> Prepare(const Call& call, absl::Duration until);
  bool IsAllocated(const Buffer& buffer) const;
  std::shared_ptr<OwnerThread::Job> Launch(const Prepared& prepared);
  // Compares what all ranks bring.
  absl::Status Meet(const Call& call, absl::Duration until, bool is_ready,
                    bool is_launched);
  absl::Status RegisterWindows(absl::Duration until);

  // For its answer: OK, or what a call returns.
  absl::Status Await(const OwnerThread::Job& job, absl::Duration until,
                     absl::string_view what) const;
  // Ends the owner's work, and what the peers wait for.
  absl::Status EndFor(const absl::Status& why);

  const NcclDeadlines deadlines_;
  Comm& control_;
  const int ordinal_;
  std::string description_;
  // The owner's; it lives until the owner has closed.
  const std::unique_ptr<NcclCommunicator> communicator_;
  const absl::StatusOr<std::shared_ptr<const nccl::Library>> library_;
  const absl::Status driver_found_;
  // From Allocate, by address.
  std::vector<std::span<std::byte>> allocated_;
  // Sizes that RegisterWindows was not called for.
  std::vector<uint64_t> unregistered_;
  // Whether all ranks had the same of these when they met last.
  bool can_register_ = false;
  // Shapes that all ranks agreed on.
  std::set<std::string> agreed_;
  std::unique_ptr<OwnerThread> owner_;
};

}  // namespace cohort::trainer
