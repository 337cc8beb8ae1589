#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "trainer/cuda/device.h"
#include "trainer/cuda/driver.h"

namespace cohort::trainer {

// Fills and reads memory of a GPU, and times what its memory can do.  On a
// stream that is ordered with the legacy default stream.
//
// Thread-compatible as cuda::Device is: one thread makes, uses and destroys it.
class DeviceCopier {
 public:
  static absl::StatusOr<std::unique_ptr<DeviceCopier>> Open(
      std::shared_ptr<const cuda::DriverTable> driver, int ordinal);
  ~DeviceCopier();
  DeviceCopier(const DeviceCopier&) = delete;
  DeviceCopier& operator=(const DeviceCopier&) = delete;

  const cuda::Device& device() const { return *device_; }

  // Between any two of host and device; returns when it is done.  Of 0 bytes:
  // only waits, as long as any work on a stream is waited for.
  absl::Status Copy(void* to, const void* from, size_t bytes);

 private:
  explicit DeviceCopier(std::unique_ptr<cuda::Device> device);

  const std::unique_ptr<cuda::Device> device_;
  cuda::Stream stream_ = nullptr;
  cuda::Event event_ = nullptr;
};

}  // namespace cohort::trainer
