#pragma once

#include <memory>

#include "absl/status/statusor.h"

#include "trainer/comm/comm.h"
#include "trainer/comm/gpu_comm.h"
#include "trainer/comm/gpu_context.h"

namespace cohort::trainer {

// The reason (common/status_util.h) of a gang that cannot reduce on GPUs.
inline constexpr char kGpusUnusable[] = "gpus_unusable";

// Blocks until all ranks are connected: over NCCL where each has a GPU of its
// own, a CudaIpcComm where all share one.  `control` must outlive the
// communicator, and is its own until that is destroyed; `exchange` is used
// during the call only.
//
// FAILED_PRECONDITION for the reason kGpusUnusable on all ranks alike, as
// ChooseTransport says; `control` is the caller's again then.  Else
// UNAVAILABLE, ABORTED, DEADLINE_EXCEEDED, and errors of `exchange`.
absl::StatusOr<std::unique_ptr<GpuComm>> ConnectGpuComm(GpuCommOptions options,
                                                        Comm& control,
                                                        Exchange& exchange);

}  // namespace cohort::trainer
