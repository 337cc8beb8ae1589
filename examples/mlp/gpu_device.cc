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
  COHORT_RETURN_IF_ERROR(device_->Check(
      driver_->cuStreamCreate(&stream_, cuda::kStreamNonBlocking),
      "cuStreamCreate"));
  COHORT_ASSIGN_OR_RETURN(staging_.done, NewEvent());
  return absl::OkStatus();
}

GpuDevice::~GpuDevice() {
  // What still runs reads and writes what is freed next.
  if (staging_.done != nullptr &&
      driver_->cuEventRecord(staging_.done, stream_) == cuda::kSuccess) {
    AwaitEvent(staging_.done, "the end").IgnoreError();
  }
  for (const cuda::Event event : marks_) driver_->cuEventDestroy(event);
  if (staging_.done != nullptr) driver_->cuEventDestroy(staging_.done);
  if (stream_ != nullptr) driver_->cuStreamDestroy(stream_);
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

absl::Status GpuDevice::Copy(cuda::DevicePointer to, cuda::DevicePointer from,
                             size_t bytes) {
  COHORT_RETURN_IF_ERROR(device_->Check(
      driver_->cuMemcpyAsync(to, from, bytes, stream_), "cuMemcpyAsync"));
  return device_->Check(driver_->cuEventRecord(staging_.done, stream_),
                        "cuEventRecord");
}

absl::Status GpuDevice::Upload(std::byte* to, std::span<const std::byte> from) {
  COHORT_RETURN_IF_ERROR(Reserve(from.size()));
  std::memcpy(staging_.memory, from.data(), from.size());
  return Copy(cuda::PointerTo(to), cuda::PointerTo(staging_.memory),
              from.size());
}

absl::Status GpuDevice::Download(std::span<std::byte> to,
                                 const std::byte* from) {
  COHORT_RETURN_IF_ERROR(Reserve(to.size()));
  COHORT_RETURN_IF_ERROR(
      Copy(cuda::PointerTo(staging_.memory), cuda::PointerTo(from), to.size()));
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

absl::Status GpuDevice::Await(size_t mark) {
  if (mark >= marks_.size()) return absl::OkStatus();
  return AwaitEvent(marks_[mark], "the network's kernels");
}

// Polled, since an event that never comes must not hold the process for ever.
absl::Status GpuDevice::AwaitEvent(cuda::Event event, absl::string_view what) {
  const MachineClock clock;
  const absl::Duration until = clock.Monotonic() + patience_;
  for (;;) {
    const cuda::Result result = driver_->cuEventQuery(event);
    if (result != cuda::kNotReady) return device_->Check(result, what);
    if (clock.Monotonic() >= until) {
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
