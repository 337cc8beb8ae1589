#include "examples/mlp/device.h"

#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "common/round_up.h"

namespace cohort::mlp {
namespace {

using trainer::DType;

uint32_t Blocks(uint64_t threads, uint32_t block = kThreads) {
  return static_cast<uint32_t>((threads + block - 1) / block);
}

}  // namespace

absl::Status Device::Launch(DType dtype, const ProductArgs& args) {
  return LaunchKernel(Kernel::kProduct, dtype,
                      {.x = Blocks(args.n, kTile), .y = Blocks(args.m, kTile)},
                      &args);
}

absl::Status Device::Launch(DType dtype, const ColumnSumArgs& args) {
  return LaunchKernel(Kernel::kColumnSum, dtype, {.x = Blocks(args.columns)},
                      &args);
}

absl::Status Device::Launch(DType dtype, const SoftmaxArgs& args) {
  return LaunchKernel(Kernel::kSoftmax, dtype, {.x = Blocks(args.rows)}, &args);
}

absl::Status Device::Launch(DType dtype, const AdamArgs& args) {
  return LaunchKernel(Kernel::kAdam, dtype, {.x = Blocks(args.count)}, &args);
}

absl::Status Device::Launch(DType dtype, const NonFiniteArgs& args) {
  return LaunchKernel(Kernel::kNonFinite, dtype, {.x = Blocks(args.count)},
                      &args);
}

absl::Status Device::Launch(DType dtype, const RoundArgs& args) {
  return LaunchKernel(Kernel::kRound, dtype, {.x = Blocks(args.count)}, &args);
}

absl::StatusOr<std::byte*> CpuDevice::Allocate(size_t bytes) {
  constexpr size_t kAlignment = 64;
  const size_t size = RoundUp(bytes, kAlignment);
  auto* const memory =
      static_cast<std::byte*>(std::aligned_alloc(kAlignment, size));
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no ", bytes, " bytes of memory"));
  }
  std::memset(memory, 0, size);
  memory_.emplace_back(memory);
  return memory;
}

void CpuDevice::Free::operator()(std::byte* memory) const { std::free(memory); }

absl::Status CpuDevice::Upload(std::byte* to, std::span<const std::byte> from) {
  std::memcpy(to, from.data(), from.size());
  return absl::OkStatus();
}

absl::Status CpuDevice::Download(std::span<std::byte> to,
                                 const std::byte* from) {
  std::memcpy(to.data(), from, to.size());
  return absl::OkStatus();
}

absl::Status CpuDevice::BeginUploads(std::span<const Copy> copies, size_t) {
  for (const Copy& copy : copies) {
    std::memcpy(copy.to, copy.from.data(), copy.from.size());
  }
  return absl::OkStatus();
}

absl::Status CpuDevice::LaunchKernel(Kernel kernel, DType dtype, Grid,
                                     const void* args) {
  for (const CpuKernel& candidate : CpuKernels()) {
    if (candidate.kernel != kernel || candidate.dtype != dtype) continue;
    candidate.run(args);
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("no kernel ", KernelName(kernel, dtype)));
}

}  // namespace cohort::mlp
