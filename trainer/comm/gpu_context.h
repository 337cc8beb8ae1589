#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "trainer/comm/comm.h"
#include "trainer/comm/gpu_end.h"
#include "trainer/comm/gpu_stream.h"
#include "trainer/comm/nccl_communicator.h"
#include "trainer/comm/nccl_library.h"
#include "trainer/comm/owner_thread.h"
#include "trainer/comm/reduce_kernels.h"
#include "trainer/comm/shared_gpu.h"
#include "trainer/cuda/driver.h"
#include "trainer/cuda/lookup.h"

namespace cohort::trainer {

struct GpuCommOptions {
  // How this rank comes by them; looked up by the thread that owns the GPU.  A
  // reason that it has none is told to all ranks.
  cuda::Lookup<cuda::DriverTable> driver =
      absl::FailedPreconditionError("no CUDA driver");
  cuda::Lookup<nccl::Library> nccl = absl::FailedPreconditionError("no NCCL");
  // For ranks that share a GPU; empty where they cannot.
  std::span<const std::byte> kernels = ReduceKernels();
  // Of the GPUs that this process sees.
  int device = 0;
  // To find all peers and connect to them.
  absl::Duration connect_deadline = absl::Seconds(60);
  NcclDeadlines deadlines = {};
  // The last abort level: what to do when a call of NCCL or CUDA does not come
  // back. Unset: SIGKILL to this process, since nothing less frees the GPU.
  std::function<void(absl::string_view why)> kill = nullptr;
  // Unset: the log alone hears of abort levels.
  TellGpuEnd tell = nullptr;
};

// The driver and the NCCL of this machine, for the first GPU that this process
// was granted; the reason when CUDA_VISIBLE_DEVICES, as a rank has it, names
// none.  Calls neither.
GpuCommOptions GpuOfThisMachine();

// One rank at its GPU: the thread that owns it, what that thread works with,
// and the host communicator that says who is there (docs/design/0005).
//
// Thread-compatible, from the thread that calls operations; End() and what the
// owner's parts say of themselves apart.
class GpuContext {
 public:
  // `control` must outlive the context.
  GpuContext(GpuCommOptions options, Comm& control);
  ~GpuContext();
  GpuContext(const GpuContext&) = delete;
  GpuContext& operator=(const GpuContext&) = delete;

  const Comm::Identity& identity() const { return identity_; }
  const GpuCommOptions& options() const { return options_; }
  Comm& control() { return control_; }
  const Comm& control() const { return control_; }

  // The owner's own.
  GpuStream& stream() { return stream_; }
  const GpuStream& stream() const { return stream_; }
  NcclCommunicator& nccl() { return nccl_; }
  const NcclCommunicator& nccl() const { return nccl_; }
  SharedGpu& shared() { return shared_; }

  std::shared_ptr<OwnerThread::Job> Post(OwnerThread::Work work) {
    return owner_.Post(std::move(work));
  }
  // For its answer, while no peer is seen to be gone: OK, or what a call
  // returns.
  absl::Status Await(const OwnerThread::Job& job, absl::Duration until,
                     absl::string_view what) const;
  // Both.
  absl::Status Do(OwnerThread::Work work, absl::Duration until,
                  absl::string_view what);

  // Ends the owner's work.  Thread-safe, never blocks.
  void End(absl::string_view why) { owner_.End(why); }
  absl::Status ended() const { return owner_.ended(); }
  // Ends it, and what the peers wait for; the status that a call returns.
  absl::Status EndFor(const absl::Status& why);

 private:
  OwnerThread::Options OwnerOptions();
  void Kill(absl::string_view hangs_in);

  const GpuCommOptions options_;
  Comm& control_;
  const Comm::Identity identity_;
  GpuStream stream_;
  NcclCommunicator nccl_;
  SharedGpu shared_;
  // Last: it uses the others.
  OwnerThread owner_;
};

}  // namespace cohort::trainer
