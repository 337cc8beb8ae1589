#include "examples/mlp/gpu_device.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/real_clock.h"
#include "common/status_macros.h"
#include "common/status_util.h"

#if defined(COHORT_HAVE_CUDA_KERNELS)
extern "C" {
// From the build (cmake/CohortCuda.cmake).
extern const std::byte cohort_mlp_kernels[];
extern const std::byte cohort_mlp_kernels_end[];
}
#endif

namespace cohort::mlp {
namespace {

namespace cuda = trainer::cuda;
using trainer::DType;

// A look costs a system call for each rank of the node, and what it finds has a
// second to be acted on.
constexpr absl::Duration kLookInterval = absl::Milliseconds(5);

}  // namespace

std::span<const std::byte> GpuKernels() {
#if defined(COHORT_HAVE_CUDA_KERNELS)
  return {cohort_mlp_kernels, cohort_mlp_kernels_end};
#else
  return {};
#endif
}

absl::StatusOr<std::unique_ptr<GpuDevice>> GpuDevice::Open(
    std::shared_ptr<const cuda::DriverTable> driver, int ordinal,
    std::span<const std::byte> image, absl::Duration patience) {
  if (image.empty()) {
    return absl::FailedPreconditionError(
        "this program was built without nvcc and has no GPU kernels: run "
        "tools/setup.sh --cuda and build again");
  }
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<cuda::Device> device,
                          cuda::Device::Open(driver, ordinal));
  // From here on the destructor gives back what there is.
  std::unique_ptr<GpuDevice> gpu(
      new GpuDevice(std::move(driver), std::move(device), patience));
  COHORT_RETURN_IF_ERROR(gpu->Prepare(image));
  return gpu;
}

absl::Status GpuDevice::Prepare(std::span<const std::byte> image) {
  auto kernels = cuda::KernelModule::Load(driver_, image);
  if (!kernels.ok()) return Annotate(kernels.status(), device_->name());
  kernels_ = *std::move(kernels);
  for (cuda::Stream* const stream : {&stream_, &uploads_}) {
    COHORT_RETURN_IF_ERROR(device_->Check(
        driver_->cuStreamCreate(stream, cuda::kStreamNonBlocking),
        "cuStreamCreate"));
  }
  COHORT_ASSIGN_OR_RETURN(staging_.done, NewEvent());
  COHORT_ASSIGN_OR_RETURN(uploaded_, NewEvent());
  return absl::OkStatus();
}

GpuDevice::~GpuDevice() {
  // What still runs reads and writes what is freed next.
  if (staging_.done != nullptr &&
      driver_->cuEventRecord(staging_.done, stream_) == cuda::kSuccess) {
    AwaitEvent(staging_.done, "the end").IgnoreError();
  }
  if (uploaded_ != nullptr) AwaitUploads().IgnoreError();
  for (const cuda::Event event : marks_) driver_->cuEventDestroy(event);
  for (const cuda::Event event : {staging_.done, uploaded_}) {
    if (event != nullptr) driver_->cuEventDestroy(event);
  }
  for (const cuda::Stream stream : {stream_, uploads_}) {
    if (stream != nullptr) driver_->cuStreamDestroy(stream);
  }
  if (staging_.memory != nullptr) device_->FreePinned(staging_.memory);
  for (const cuda::DevicePointer memory : memory_) device_->Free(memory);
  kernels_.reset();
}

absl::StatusOr<cuda::Event> GpuDevice::NewEvent() {
  cuda::Event event = nullptr;
  COHORT_RETURN_IF_ERROR(
      device_->Check(driver_->cuEventCreate(&event, cuda::kEventDisableTiming),
                     "cuEventCreate"));
  return event;
}

absl::StatusOr<std::byte*> GpuDevice::Allocate(size_t bytes) {
  COHORT_ASSIGN_OR_RETURN(const cuda::DevicePointer memory,
                          device_->Allocate(bytes));
  memory_.push_back(memory);
  COHORT_RETURN_IF_ERROR(device_->Check(
      driver_->cuMemsetD8Async(memory, 0, bytes, stream_), "cuMemsetD8Async"));
  // An upload comes behind the zeroes, too.
  COHORT_RETURN_IF_ERROR(device_->Check(
      driver_->cuEventRecord(staging_.done, stream_), "cuEventRecord"));
  COHORT_RETURN_IF_ERROR(
      device_->Check(driver_->cuStreamWaitEvent(uploads_, staging_.done, 0),
                     "cuStreamWaitEvent"));
  return cuda::AddressOf(memory);
}

// The last copy is over when it returns.
absl::Status GpuDevice::Reserve(size_t bytes) {
  COHORT_RETURN_IF_ERROR(AwaitEvent(staging_.done, "a copy"));
  if (bytes <= staging_.bytes) return absl::OkStatus();
  const size_t wanted = std::max(bytes, 2 * staging_.bytes);
  if (staging_.memory != nullptr) {
    device_->FreePinned(std::exchange(staging_.memory, nullptr));
  }
  staging_.bytes = 0;
  COHORT_ASSIGN_OR_RETURN(staging_.memory, device_->AllocatePinned(wanted));
  staging_.bytes = wanted;
  return absl::OkStatus();
}

absl::Status GpuDevice::CopyStaged(cuda::DevicePointer to,
                                   cuda::DevicePointer from, size_t bytes) {
  COHORT_RETURN_IF_ERROR(device_->Check(
      driver_->cuMemcpyAsync(to, from, bytes, stream_), "cuMemcpyAsync"));
  return device_->Check(driver_->cuEventRecord(staging_.done, stream_),
                        "cuEventRecord");
}

absl::Status GpuDevice::Upload(std::byte* to, std::span<const std::byte> from) {
  COHORT_RETURN_IF_ERROR(Reserve(from.size()));
  std::memcpy(staging_.memory, from.data(), from.size());
  return CopyStaged(cuda::PointerTo(to), cuda::PointerTo(staging_.memory),
                    from.size());
}

absl::Status GpuDevice::Download(std::span<std::byte> to,
                                 const std::byte* from) {
  COHORT_RETURN_IF_ERROR(Reserve(to.size()));
  COHORT_RETURN_IF_ERROR(CopyStaged(cuda::PointerTo(staging_.memory),
                                    cuda::PointerTo(from), to.size()));
  COHORT_RETURN_IF_ERROR(AwaitEvent(staging_.done, "a copy to the host"));
  std::memcpy(to.data(), staging_.memory, to.size());
  return absl::OkStatus();
}

absl::Status GpuDevice::Mark(size_t mark) {
  while (marks_.size() <= mark) {
    COHORT_ASSIGN_OR_RETURN(marks_.emplace_back(), NewEvent());
  }
  return device_->Check(driver_->cuEventRecord(marks_[mark], stream_),
                        "cuEventRecord");
}

absl::Status GpuDevice::Await(size_t mark, const Look& look) {
  if (mark >= marks_.size()) return absl::OkStatus();
  return AwaitEvent(marks_[mark], "the network's kernels", look);
}

// The event is set behind copies that failed half way, too: those before are
// under way and read their memory.
absl::Status GpuDevice::BeginUploads(std::span<const Device::Copy> copies,
                                     size_t behind) {
  const absl::Status begun = EnqueueUploads(copies, behind);
  const absl::Status marked =
      device_->Check(driver_->cuEventRecord(uploaded_, uploads_),
                     "cuEventRecord of an upload");
  if (!marked.ok()) uploads_unmarked_ = true;
  return begun.ok() ? marked : begun;
}

absl::Status GpuDevice::EnqueueUploads(std::span<const Device::Copy> copies,
                                       size_t behind) {
  if (behind < marks_.size()) {
    COHORT_RETURN_IF_ERROR(
        device_->Check(driver_->cuStreamWaitEvent(uploads_, marks_[behind], 0),
                       "cuStreamWaitEvent of an upload"));
  }
  for (const Device::Copy& copy : copies) {
    COHORT_RETURN_IF_ERROR(
        device_->Check(driver_->cuMemcpyAsync(cuda::PointerTo(copy.to),
                                              cuda::PointerTo(copy.from.data()),
                                              copy.from.size(), uploads_),
                       "cuMemcpyAsync of an upload"));
  }
  return absl::OkStatus();
}

absl::Status GpuDevice::JoinUploads() {
  return device_->Check(driver_->cuStreamWaitEvent(stream_, uploaded_, 0),
                        "cuStreamWaitEvent for an upload");
}

absl::Status GpuDevice::AwaitUploads() {
  if (uploads_unmarked_) {
    return absl::InternalError(
        absl::StrCat(name(), ": nothing tells when its uploads are over"));
  }
  return AwaitEvent(uploaded_, "an upload");
}

// Polled, since an event that never comes must not hold the process for ever.
absl::Status GpuDevice::AwaitEvent(cuda::Event event, absl::string_view what,
                                   const Look& look) {
  const MachineClock clock;
  const absl::Duration begin = clock.Monotonic();
  const absl::Duration until =
      begin + (hangs_ ? absl::ZeroDuration() : patience_);
  absl::Duration next_look = begin + kLookInterval;
  for (;;) {
    const cuda::Result result = driver_->cuEventQuery(event);
    if (result != cuda::kNotReady) return device_->Check(result, what);
    const absl::Duration now = clock.Monotonic();
    if (look && now >= next_look) {
      COHORT_RETURN_IF_ERROR(
          Annotate(look(), absl::StrCat(name(), ": ", what)));
      next_look = now + kLookInterval;
    }
    if (now >= until) {
      hangs_ = true;
      return absl::DeadlineExceededError(
          absl::StrCat(name(), ": ", what, ": not over after ",
                       absl::FormatDuration(patience_)));
    }
    std::this_thread::yield();
  }
}

absl::Status GpuDevice::LaunchKernel(Kernel kernel, DType dtype, Grid grid,
                                     const void* args) {
  const std::string name = KernelName(kernel, dtype);
  const auto function = kernels_->Find(name);
  if (!function.ok()) return Annotate(function.status(), device_->name());
  const absl::Status launched = kernels_->Launch(
      *function, {.blocks_x = grid.x, .blocks_y = grid.y, .threads = kThreads},
      stream_, args);
  if (launched.ok()) return launched;  // Each step comes here often.
  return Annotate(launched, absl::StrCat(device_->name(), ": ", name));
}

}  // namespace cohort::mlp
