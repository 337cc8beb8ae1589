#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "examples/mlp/cpu_kernels.h"
#include "examples/mlp/gpu_device.h"
#include "trainer/cuda/testing/fake_driver.h"

namespace cohort::mlp {

// The network's kernels on a fake GPU: their counterparts for CPUs, run on its
// streams.
inline void AddKernels(trainer::cuda::FakeDriver& driver) {
  for (const CpuKernel& kernel : CpuKernels()) {
    driver.AddKernel(
        KernelName(kernel.kernel, kernel.dtype), [kernel](void** parameters) {
          std::vector<std::byte> args(kernel.args_bytes);
          std::memcpy(args.data(), parameters[0], args.size());
          return std::function<void()>(
              [kernel, args = std::move(args)] { kernel.run(args.data()); });
        });
  }
}

// What a fake takes for kernels.
inline std::span<const std::byte> FakeImage() {
  static constexpr std::byte kImage[1] = {};
  return kImage;
}

inline absl::StatusOr<std::unique_ptr<GpuDevice>> OpenFakeGpu(
    trainer::cuda::FakeDriver& driver,
    absl::Duration patience = absl::Minutes(1)) {
  AddKernels(driver);
  return GpuDevice::Open(driver.table(), /*ordinal=*/0, FakeImage(), patience);
}

}  // namespace cohort::mlp
