#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "examples/mlp/device.h"
#include "trainer/cuda/device.h"
#include "trainer/cuda/driver.h"
#include "trainer/cuda/kernel_module.h"
#include "trainer/pinned_memory.h"

namespace cohort::mlp {

// The kernels of mlp.cu, as cuModuleLoadData takes them.  Empty in a build
// without nvcc.
std::span<const std::byte> GpuKernels();

// A GPU by its driver alone.  Kernels run on a stream that waits for no other,
// so that a communicator's work runs beside them; so do uploads on a second
// one, by the engine that copies, from pinned memory (PM-1).  What one waits
// for of the other it waits for on the GPU.
//
// Calls on it come from the thread that opened it, but for batch_memory()'s and
// AwaitUploads.
class GpuDevice final : public Device {
 public:
  // GPU `ordinal` of those that this process sees, with the kernels of `image`.
  // FAILED_PRECONDITION when `image` is empty, there is no such GPU, or no
  // kernel for it; else what the driver says.
  //
  // What waits does so for `patience` at most and is DEADLINE_EXCEEDED then,
  // and nothing waits after that.
  static absl::StatusOr<std::unique_ptr<GpuDevice>> Open(
      std::shared_ptr<const trainer::cuda::DriverTable> driver, int ordinal,
      std::span<const std::byte> image = GpuKernels(),
      absl::Duration patience = absl::Minutes(1));
  ~GpuDevice() override;

  const std::string& name() const override { return device_->name(); }
  bool is_gpu() const override { return true; }
  // RESOURCE_EXHAUSTED says how much is free.
  absl::StatusOr<std::byte*> Allocate(size_t bytes) override;
  absl::Status Upload(std::byte* to, std::span<const std::byte> from) override;
  absl::Status Download(std::span<std::byte> to,
                        const std::byte* from) override;
  absl::Status Mark(size_t mark) override;
  absl::Status Await(size_t mark, const Look& look) override;
  absl::Status BeginUploads(std::span<const Copy> copies,
                            size_t behind) override;
  absl::Status JoinUploads() override;
  absl::Status AwaitUploads() override;
  trainer::BatchMemory& batch_memory() override { return batch_memory_; }

 private:
  // Pinned host memory that grows, and an event behind its last copy.
  struct Staging {
    std::byte* memory = nullptr;
    size_t bytes = 0;
    trainer::cuda::Event done = nullptr;
  };

  GpuDevice(std::shared_ptr<const trainer::cuda::DriverTable> driver,
            std::unique_ptr<trainer::cuda::Device> device,
            absl::Duration patience)
      : driver_(std::move(driver)),
        device_(std::move(device)),
        patience_(patience),
        batch_memory_(*device_, [this] { return AwaitUploads(); }) {}

  absl::Status Prepare(std::span<const std::byte> image);
  absl::StatusOr<trainer::cuda::Event> NewEvent();
  absl::Status Reserve(size_t bytes);
  absl::Status CopyStaged(trainer::cuda::DevicePointer to,
                          trainer::cuda::DevicePointer from, size_t bytes);
  absl::Status EnqueueUploads(std::span<const Copy> copies, size_t behind);
  absl::Status AwaitEvent(trainer::cuda::Event event, absl::string_view what,
                          const Look& look = nullptr);
  absl::Status LaunchKernel(Kernel kernel, trainer::DType dtype, Grid grid,
                            const void* args) override;

  const std::shared_ptr<const trainer::cuda::DriverTable> driver_;
  const std::unique_ptr<trainer::cuda::Device> device_;
  const absl::Duration patience_;
  std::atomic<bool> hangs_ = false;  // a wait has taken all of it
  std::unique_ptr<trainer::cuda::KernelModule> kernels_;
  trainer::cuda::Stream stream_ = nullptr;
  std::vector<trainer::cuda::DevicePointer> memory_;
  std::vector<trainer::cuda::Event> marks_;
  Staging staging_;
  trainer::cuda::Stream uploads_ = nullptr;
  trainer::cuda::Event uploaded_ = nullptr;     // behind the last upload begun
  std::atomic<bool> uploads_unmarked_ = false;  // it could not be set
  trainer::PinnedMemory batch_memory_;
};

}  // namespace cohort::mlp
