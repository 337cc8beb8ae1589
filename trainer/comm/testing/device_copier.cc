#include "trainer/comm/testing/device_copier.h"

#include <cstdint>
#include <thread>
#include <utility>

#include "common/status_macros.h"

namespace cohort::trainer {
DeviceCopier::DeviceCopier(std::unique_ptr<cuda::Device> device)
    : device_(std::move(device)) {}

absl::StatusOr<std::unique_ptr<DeviceCopier>> DeviceCopier::Open(
    std::shared_ptr<const cuda::DriverTable> driver, int ordinal) {
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<cuda::Device> device,
                          cuda::Device::Open(std::move(driver), ordinal));
  std::unique_ptr<DeviceCopier> copier(new DeviceCopier(std::move(device)));
  const cuda::Device& on = copier->device();
  COHORT_RETURN_IF_ERROR(on.Check(
      on.driver().cuStreamCreate(&copier->stream_, cuda::kStreamDefault),
      "cuStreamCreate"));
  COHORT_RETURN_IF_ERROR(on.Check(
      on.driver().cuEventCreate(&copier->event_, cuda::kEventDisableTiming),
      "cuEventCreate"));
  return copier;
}

DeviceCopier::~DeviceCopier() {
  if (event_ != nullptr) device_->driver().cuEventDestroy(event_);
  if (stream_ != nullptr) device_->driver().cuStreamDestroy(stream_);
}

absl::Status DeviceCopier::Copy(void* to, const void* from, size_t bytes) {
  const cuda::DriverTable& driver = device_->driver();
  if (bytes > 0) {
    COHORT_RETURN_IF_ERROR(device_->Check(
        driver.cuMemcpyAsync(cuda::PointerTo(to), cuda::PointerTo(from), bytes,
                             stream_),
        "cuMemcpyAsync"));
  }
  COHORT_RETURN_IF_ERROR(
      device_->Check(driver.cuEventRecord(event_, stream_), "cuEventRecord"));
  while (true) {
    const cuda::Result done = driver.cuEventQuery(event_);
    if (done != cuda::kNotReady) return device_->Check(done, "cuEventQuery");
    std::this_thread::yield();
  }
}

}  // namespace cohort::trainer
