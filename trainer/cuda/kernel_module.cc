#include "trainer/cuda/kernel_module.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "common/status_macros.h"

namespace cohort::trainer::cuda {
namespace {

#if defined(COHORT_CUDA_TOOLKIT)
constexpr int kToolkit = COHORT_CUDA_TOOLKIT;
#else
constexpr int kToolkit = 0;  // no kernels are built
#endif

// Why a driver does not take the kernels: it is older than what made them, else
// the GPU is older than those that they were made for.
std::string MismatchText(const DriverTable& driver) {
  int version = 0;
  if (driver.cuDriverGetVersion(&version) != kSuccess) return "";
  const std::string versions = absl::StrCat(
      "; the kernels were built by CUDA ", DriverVersionText(kToolkit),
      " and the driver is of CUDA ", DriverVersionText(version), ": ");
  if (version < kToolkit) {
    return absl::StrCat(
        versions,
        "update the driver, or build with a toolkit that is not "
        "newer (docs/gpu.md)");
  }
  return absl::StrCat(versions,
                      "they are for GPUs of compute capability 8.0 and newer");
}

}  // namespace

absl::StatusOr<std::unique_ptr<KernelModule>> KernelModule::Load(
    std::shared_ptr<const DriverTable> driver,
    std::span<const std::byte> image) {
  Module module = nullptr;
  const absl::Status loaded =
      DriverStatus(*driver, driver->cuModuleLoadData(&module, image.data()),
                   "cuModuleLoadData of the kernels");
  if (absl::IsFailedPrecondition(loaded)) {
    return absl::FailedPreconditionError(
        absl::StrCat(loaded.message(), MismatchText(*driver)));
  }
  COHORT_RETURN_IF_ERROR(loaded);
  return std::unique_ptr<KernelModule>(
      new KernelModule(std::move(driver), module));
}

KernelModule::KernelModule(std::shared_ptr<const DriverTable> driver,
                           Module module)
    : driver_(std::move(driver)), module_(module) {}

KernelModule::~KernelModule() { driver_->cuModuleUnload(module_); }

absl::StatusOr<Function> KernelModule::Find(const std::string& name) {
  const auto found = functions_.find(name);
  if (found != functions_.end()) return found->second;
  Function function = nullptr;
  COHORT_RETURN_IF_ERROR(DriverStatus(
      *driver_, driver_->cuModuleGetFunction(&function, module_, name.c_str()),
      absl::StrCat("cuModuleGetFunction of ", name)));
  functions_[name] = function;
  return function;
}

absl::Status KernelModule::Launch(Function kernel, const LaunchShape& shape,
                                  Stream stream, const void* argument) const {
  void* parameters[] = {const_cast<void*>(argument)};
  return DriverStatus(
      *driver_,
      driver_->cuLaunchKernel(kernel, shape.blocks_x, shape.blocks_y, 1,
                              shape.threads, 1, 1, /*shared_bytes=*/0, stream,
                              parameters, nullptr),
      "cuLaunchKernel");
}

}  // namespace cohort::trainer::cuda
