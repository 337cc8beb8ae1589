#include "trainer/comm/shared_gpu.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "common/round_up.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "trainer/comm/reduce_args.h"
#include "trainer/comm/reduce_kernels.h"

namespace cohort::trainer {
namespace {

// A handle names the driver's block: what is smaller may share one with other
// memory of this process, which would be open to the peers, too.
constexpr size_t kBlockBytes = size_t{2} << 20;

constexpr unsigned kThreads = 512;
// Several blocks for each multiprocessor of any GPU; threads take more than one
// run of elements where there are fewer.
constexpr uint64_t kBlocksMax = 1024;
constexpr uintptr_t kRunBytes = 16;

bool IsAligned(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % kRunBytes == 0;
}

}  // namespace

SharedGpu::SharedGpu(GpuStream& gpu, std::span<const std::byte> kernels)
    : gpu_(gpu), kernels_(kernels) {}

absl::Status SharedGpu::Open(OwnerThread& owner) {
  owner.SetCall("cuModuleLoadData");
  auto module = cuda::KernelModule::Load(gpu_.shared_driver(), kernels_);
  if (!module.ok()) return Annotate(module.status(), gpu_.Place());
  module_ = *std::move(module);
  return absl::OkStatus();
}

absl::StatusOr<SharedGpu::Region> SharedGpu::Allocate(OwnerThread& owner,
                                                      size_t bytes) {
  COHORT_ASSIGN_OR_RETURN(
      const cuda::DevicePointer memory,
      gpu_.Allocate(owner, RoundUp(std::max(bytes, size_t{1}), kBlockBytes)));
  regions_.push_back(memory);
  Region region = {.memory = std::span(cuda::AddressOf(memory), bytes)};
  owner.SetCall("cuIpcGetMemHandle");
  COHORT_RETURN_IF_ERROR(
      gpu_.Check(gpu_.driver().cuIpcGetMemHandle(&region.handle, memory),
                 "cuIpcGetMemHandle"));
  return region;
}

absl::StatusOr<std::byte*> SharedGpu::Reach(OwnerThread& owner,
                                            const Place& place) {
  if (place.address != nullptr) return place.address;
  const std::string name(place.handle.bytes, sizeof(place.handle.bytes));
  const auto [found, is_new] = opened_.try_emplace(name, 0);
  if (is_new) {
    owner.SetCall("cuIpcOpenMemHandle");
    const cuda::Result result = gpu_.driver().cuIpcOpenMemHandle(
        &found->second, place.handle, cuda::kIpcMemLazyEnablePeerAccess);
    if (result != cuda::kSuccess) {
      opened_.erase(found);
      return gpu_.Check(result, "cuIpcOpenMemHandle");
    }
  }
  return cuda::AddressOf(found->second) + place.offset;
}

absl::Status SharedGpu::Enqueue(OwnerThread& owner, const Work& work) {
  if (work.count == 0 || work.destinations.empty()) return absl::OkStatus();
  ReduceArgs args = {
      .count = work.count,
      .sources = static_cast<uint32_t>(work.sources.size()),
      .destinations = static_cast<uint32_t>(work.destinations.size()),
      .divisor = work.divisor,
      .is_aligned = 1};
  for (size_t i = 0; i < work.sources.size(); ++i) {
    COHORT_ASSIGN_OR_RETURN(args.source[i], Reach(owner, work.sources[i]));
    if (!IsAligned(args.source[i])) args.is_aligned = 0;
  }
  for (size_t i = 0; i < work.destinations.size(); ++i) {
    COHORT_ASSIGN_OR_RETURN(args.destination[i],
                            Reach(owner, work.destinations[i]));
    if (!IsAligned(args.destination[i])) args.is_aligned = 0;
  }
  const uint64_t runs = args.is_aligned != 0
                            ? work.count * SizeOf(work.dtype) / kRunBytes + 1
                            : work.count;
  const uint64_t blocks =
      std::min((runs + kThreads - 1) / kThreads, kBlocksMax);
  owner.SetCall("cuModuleGetFunction");
  const auto kernel = module_->Find(ReduceKernelName(work.dtype, work.op));
  if (!kernel.ok()) return Annotate(kernel.status(), gpu_.Place());
  owner.SetCall("cuLaunchKernel");
  const absl::Status launched = module_->Launch(
      *kernel, {.blocks_x = static_cast<unsigned>(blocks), .threads = kThreads},
      gpu_.handle(), &args);
  if (launched.ok()) return launched;
  return Annotate(launched, gpu_.Place());
}

absl::Status SharedGpu::EnqueueCopy(OwnerThread& owner, const Place& to,
                                    const Place& from, size_t bytes) {
  COHORT_ASSIGN_OR_RETURN(std::byte* const target, Reach(owner, to));
  COHORT_ASSIGN_OR_RETURN(const std::byte* const source, Reach(owner, from));
  return gpu_.Copy(owner, target, source, bytes);
}

void SharedGpu::Forget(OwnerThread& owner) {
  owner.SetCall("cuIpcCloseMemHandle");
  for (const auto& [name, memory] : opened_) {
    gpu_.driver().cuIpcCloseMemHandle(memory);
  }
  opened_.clear();
}

void SharedGpu::Close(OwnerThread& owner) {
  Forget(owner);
  owner.SetCall("cuMemFree");
  // What peers may still have mapped ends with this process's context, which
  // the driver counts them for; freeing it here is undefined
  // (cuIpcOpenMemHandle).
  if (is_released_) {
    for (const cuda::DevicePointer memory : regions_) {
      gpu_.device().Free(memory);
    }
  }
  regions_.clear();
  owner.SetCall("cuModuleUnload");
  module_.reset();
}

}  // namespace cohort::trainer
