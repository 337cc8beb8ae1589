#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "trainer/comm/comm.h"
#include "trainer/comm/gpu_end.h"
#include "trainer/comm/gpu_stream.h"
#include "trainer/comm/nccl_library.h"
#include "trainer/comm/owner_thread.h"
#include "trainer/cuda/lookup.h"

namespace cohort::trainer {

// A rank that has done its work shall not be killed while it tidies up.  To
// drain a stream, unmap tens of GiB and release a context takes seconds where
// many do so at once; half a minute is far beyond that, and nobody waits for
// such a rank except those who wait for its job.
inline constexpr absl::Duration kLeaveTimeout = absl::Seconds(30);

// NCCL's proxy threads look up from poll() twice a second (src/proxy.cc,
// ncclProxyService), and revoke and abort wait until they have.
inline constexpr absl::Duration kNcclPoll = absl::Milliseconds(500);

// How long each abort level may take.  No caller waits for it: calls end
// within 100 ms of a revoke (CM-1).
struct NcclDeadlines {
  absl::Duration revoke = absl::Milliseconds(700);
  // From the end of a communicator until it is quiet, by whatever level; then
  // the process is killed.
  absl::Duration quiet = absl::Seconds(3);
  // To take leave of peers when all went well, and then to give back what is
  // held.
  absl::Duration finish = kLeaveTimeout;
  // To find driver and NCCL and to open the GPU: cuInit alone takes some 10 s
  // where many GPUs wake up.  Then the peers are told.
  absl::Duration take = absl::Seconds(45);
  // For memory, and for what else a call without a deadline needs.
  absl::Duration memory = absl::Seconds(30);
};

// One ncclComm_t on one GPU with its memory, as its owner thread sees it: every
// call is the owner's own (NC-1).  Calls that wait poll, and are ABORTED soon
// after the owner ends.
//
// NC-4: after Quiet nothing of the communicator works on the GPU.
// NC-7: memory from Allocate is given back by Close, the last.
class NcclCommunicator {
 public:
  // Device memory, and pinned host memory of the same size to fill it from.
  struct Stage {
    std::byte* pinned = nullptr;
    std::byte* device = nullptr;
    size_t bytes = 0;
  };
  // One grouped operation over device memory.
  struct Collective {
    Comm::Kind kind = Comm::Kind::kAllReduce;
    ReduceOp op = ReduceOp::kSum;
    int root = 0;
    int world = 1;
    std::vector<Buffer> buffers = {};
    // Of the stage: copied to the device before it, and back after it.
    size_t staged_bytes = 0;
  };

  // `gpu` must outlive it; it is open before the first call.
  NcclCommunicator(const Comm::Identity& identity, GpuStream& gpu,
                   const NcclDeadlines& deadlines);

  // Finds NCCL, before all other calls.
  absl::Status Open(OwnerThread& owner,
                    const cuda::Lookup<nccl::Library>& library);
  // After Open.  From any thread that knows of it.
  int version() const { return library_->version; }

  absl::StatusOr<nccl::UniqueId> NewId(OwnerThread& owner);
  // Returns when all ranks have called it.
  absl::Status Init(OwnerThread& owner, const nccl::UniqueId& id);

  absl::StatusOr<std::span<std::byte>> Allocate(OwnerThread& owner,
                                                size_t bytes);
  // At least `bytes`.  The one before it is given back.
  absl::StatusOr<Stage> Reserve(OwnerThread& owner, size_t bytes);

  // Returns when this rank's part is over.
  absl::Status Run(OwnerThread& owner, const Collective& collective);

  // Takes leave of the peers, when all went well.
  absl::Status Finish(OwnerThread& owner);
  // Revoke, else abort; the level that was needed, if there was
  // something to end.  `why` is for the log and for the caller.
  std::optional<GpuEnd> Quiet(OwnerThread& owner, absl::string_view why);
  // After the stream was drained.
  void Close(OwnerThread& owner);

 private:
  enum class State { kNone, kInit, kUp, kQuiet };

  void FreeStage(OwnerThread& owner);

  absl::Status Enqueue(OwnerThread& owner, const Collective& collective);
  nccl::Result EnqueueOne(const Collective& collective, const Buffer& buffer);
  nccl::Result EnqueueBlocks(const Collective& collective,
                             const Buffer& buffer);

  // Polls until NCCL has done in the background what answered `started`.
  // DEADLINE_EXCEEDED at `until`; ABORTED when the owner ends, but for what it
  // does then.
  absl::Status AwaitNccl(OwnerThread& owner, const char* call,
                         nccl::Result started, absl::Duration until);
  // What NCCL says of itself in the background.
  absl::Status Look(OwnerThread& owner);
  absl::Status Revoke(OwnerThread& owner, absl::string_view why);
  void Abort(OwnerThread& owner, absl::string_view why);

  // A status that names rank and device.
  absl::Status Nccl(nccl::Result result, absl::string_view call) const;

  const Comm::Identity identity_;
  GpuStream& gpu_;
  std::shared_ptr<const nccl::Library> library_;
  const NcclDeadlines deadlines_;
  State state_ = State::kNone;
  // In Quiet and after it, which the owner's end shall not cut short.
  bool is_leaving_ = false;
  nccl::Communicator comm_ = nullptr;
  std::vector<cuda::DevicePointer> blocks_;
  Stage stage_;
};

}  // namespace cohort::trainer
