#pragma once

#include <string>
#include <vector>

#include "trainer/comm/gpu_context.h"

namespace cohort::trainer {

// What this machine has for tests and benches of GPUs.  A value.
struct GpuMachine {
  // Why nothing can run here that needs a GPU, and that needs NCCL as well:
  // the words for a skip.  Empty where it can.
  std::string no_gpu;
  std::string no_nccl;

  std::vector<std::string> gpus;  // uuids, as CUDA_VISIBLE_DEVICES orders them
  std::string driver_version;     // "13.0", of CUDA as the driver has it
  std::string nccl_version;       // "2.28.9 (libnccl.so.2)"

  // Whether `world` ranks have a GPU each.
  bool HasGpuEach(int world) const {
    return static_cast<size_t>(world) <= gpus.size();
  }
};

// Looked at once, in a process of its own, so that the caller can still start
// gangs (ProcessGang).
const GpuMachine& ThisGpuMachine();

// A rank's way to NCCL on this machine: a GPU each where there are enough.
//
// Else all ranks share the first one, by a trick: to NCCL, which refuses that,
// each says that it is on another machine (NCCL_HOSTID), and to its peers that
// its GPU is another one.  NCCL then goes through sockets; that it does so at
// all is what tests can show with one GPU, its speed says nothing of NCCL.  In
// the rank's process, once.
GpuCommOptions NcclOnThisMachine(const GpuMachine& machine, int rank,
                                 int world);

// A rank's way to the kernels that ranks of one GPU reduce with: all are on the
// first one, without NCCL.
GpuCommOptions IpcOnThisMachine();

}  // namespace cohort::trainer
