#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "trainer/cuda/driver.h"

namespace cohort::trainer::cuda {

struct LaunchShape {
  unsigned blocks_x = 1;
  unsigned blocks_y = 1;
  unsigned threads = 1;  // a block
};

// Kernels of our own, on the device whose context is current: they take one
// argument, a struct.  Thread-compatible, from the thread that loaded it.
// Errors are DriverStatus's and name the call, and Find's the kernel, never the
// device.
class KernelModule {
 public:
  // `image` as cmake/CohortCuda.cmake makes it; not empty. FAILED_PRECONDITION,
  // with the versions of toolkit and driver, when the driver cannot load it.
  static absl::StatusOr<std::unique_ptr<KernelModule>> Load(
      std::shared_ptr<const DriverTable> driver,
      std::span<const std::byte> image);
  ~KernelModule();
  KernelModule(const KernelModule&) = delete;
  KernelModule& operator=(const KernelModule&) = delete;

  // Asked of the driver once.  Valid as long as the module.
  absl::StatusOr<Function> Find(const std::string& name);
  // Enqueues it; `argument` is copied before it returns.
  absl::Status Launch(Function kernel, const LaunchShape& shape, Stream stream,
                      const void* argument) const;

 private:
  KernelModule(std::shared_ptr<const DriverTable> driver, Module module);

  const std::shared_ptr<const DriverTable> driver_;
  const Module module_;
  std::map<std::string, Function> functions_;  // by name
};

}  // namespace cohort::trainer::cuda
