#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "trainer/comm/comm.h"
#include "trainer/comm/gpu_stream.h"
#include "trainer/comm/owner_thread.h"
#include "trainer/cuda/driver.h"
#include "trainer/cuda/kernel_module.h"

namespace cohort::trainer {

// One rank's part of a GPU that ranks share: memory that the others reach, the
// others' memory, and kernels over both; as its owner thread sees it (NC-1).
// See docs/design/0006-ranks-of-one-gpu.md, whose CI-n are kept here.
//
// CI-4: Forget ends what this rank has of the others; Release says that they
//       have done the same, and only then Close frees what they had.
class SharedGpu {
 public:
  // Memory of this rank that the others can open.
  struct Region {
    std::span<std::byte> memory;
    cuda::IpcMemoryHandle handle = {};
  };
  // Memory of any rank: this rank's own at `address`, or the others' in the
  // region of a handle.
  struct Place {
    std::byte* address = nullptr;
    cuda::IpcMemoryHandle handle = {};  // where `address` is null
    size_t offset = 0;
  };
  // Elements of `sources`, combined in their order and divided by `divisor`
  // unless that is 1, become those of `destinations`.
  struct Work {
    DType dtype = DType::kF32;
    ReduceOp op = ReduceOp::kSum;  // not kAverage
    size_t count = 0;
    uint32_t divisor = 1;  // floating point only
    std::vector<Place> sources = {};
    std::vector<Place> destinations = {};
  };

  // `gpu` must outlive it, and is open before the first call.  `kernels` as
  // ReduceKernels() gives them; not empty.
  SharedGpu(GpuStream& gpu, std::span<const std::byte> kernels);

  absl::Status Open(OwnerThread& owner);
  // At least `bytes`, not zeroed.
  absl::StatusOr<Region> Allocate(OwnerThread& owner, size_t bytes);

  // Enqueues one kernel.
  absl::Status Enqueue(OwnerThread& owner, const Work& work);
  absl::Status EnqueueCopy(OwnerThread& owner, const Place& to,
                           const Place& from, size_t bytes);

  void Forget(OwnerThread& owner);
  void Release() { is_released_ = true; }
  // After the stream was drained.
  void Close(OwnerThread& owner);

 private:
  // Where this process sees it.
  absl::StatusOr<std::byte*> Reach(OwnerThread& owner, const Place& place);

  GpuStream& gpu_;
  const std::span<const std::byte> kernels_;
  std::unique_ptr<cuda::KernelModule> module_;
  std::vector<cuda::DevicePointer> regions_;
  // The others' regions, by the bytes of their handles.
  std::map<std::string, cuda::DevicePointer> opened_;
  bool is_released_ = false;
};

}  // namespace cohort::trainer
