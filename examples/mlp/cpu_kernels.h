#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "trainer/comm/comm.h"

namespace cohort::mlp {

enum class Kernel { kProduct, kColumnSum, kSoftmax, kAdam, kNonFinite, kRound };

// As mlp.cu has it: "cohort_mlp_product_f32".
std::string KernelName(Kernel kernel, trainer::DType dtype);

// What a kernel does, on a CPU.
struct CpuKernel {
  Kernel kernel;
  trainer::DType dtype;
  size_t args_bytes;
  // Takes one of kernel_args.h.
  void (*run)(const void* args);
};

// Of all kernels and the types f32, f16 and bf16.
std::span<const CpuKernel> CpuKernels();

}  // namespace cohort::mlp
