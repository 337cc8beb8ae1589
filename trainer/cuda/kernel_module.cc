#include "trainer/cuda/kernel_module.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "common/status_macros.h"

namespace cohort::trainer::cuda {

absl::StatusOr<std::unique_ptr<KernelModule>> KernelModule::Load(
    std::shared_ptr<const DriverTable> driver,
    std::span<const std::byte> image) {
  Module module = nullptr;
  COHORT_RETURN_IF_ERROR(
      DriverStatus(*driver, driver->cuModuleLoadData(&module, image.data()),
                   "cuModuleLoadData of the kernels"));
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
