#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "trainer/cuda/driver.h"

namespace cohort::trainer::cuda {

// "GPU-01234567-89ab-...", as nvidia-smi and CUDA_VISIBLE_DEVICES write it.
std::string UuidText(const Uuid& uuid);

// The place, among the GPUs that this process sees, of the `own`-th that it was
// granted: a rank may see those of its siblings too (COHORT_GPU_IDS in
// docs/operations/reference.md).  `own` where nothing says which are its own.
int VisibleOrdinal(int own);

// What errors call that GPU before the driver has named it: as
// CUDA_VISIBLE_DEVICES does, "GPU-01234567-...", or "GPU 1" where that gives no
// uuids.
std::string VisibleName(int ordinal);

// One GPU, through its primary context, which the process's other users of CUDA
// (NCCL, PyTorch) share.
//
// Thread-compatible, and more: every call, the destructor too, comes from the
// thread that opened it, since the context is current there, but for what says
// otherwise.  Errors name the device.
class Device {
 public:
  // `ordinal` counts what CUDA_VISIBLE_DEVICES shows.  FAILED_PRECONDITION when
  // there is no such device; else what the driver says.
  static absl::StatusOr<std::unique_ptr<Device>> Open(
      std::shared_ptr<const DriverTable> driver, int ordinal,
      BeforeCall before = Unwatched);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DriverTable& driver() const { return *driver_; }
  const std::string& uuid() const { return uuid_; }
  // "GPU-01234567-... (NVIDIA H200)"
  const std::string& name() const { return name_; }

  // DriverStatus, naming the device.
  absl::Status Check(Result result, absl::string_view what) const;

  // Device memory, not zeroed.  RESOURCE_EXHAUSTED says how much is free.
  absl::StatusOr<DevicePointer> Allocate(size_t bytes,
                                         BeforeCall before = Unwatched) const;
  void Free(DevicePointer memory) const;

  // Makes the context current on the calling thread, too.  From any thread.
  absl::Status Enter() const;

  // Host memory that the device copies from and to by itself.  From any thread
  // that has entered.
  absl::StatusOr<std::byte*> AllocatePinned(size_t bytes) const;
  void FreePinned(std::byte* memory) const;

  // Whether kernels may use the address as it is.
  bool Reaches(const void* address) const;

 private:
  Device(std::shared_ptr<const DriverTable> driver, DeviceHandle handle,
         Context context, std::string uuid, std::string name);

  const std::shared_ptr<const DriverTable> driver_;
  const DeviceHandle handle_;
  const Context context_;
  const std::string uuid_;
  const std::string name_;
};

}  // namespace cohort::trainer::cuda
