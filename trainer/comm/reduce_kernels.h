#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "trainer/comm/comm.h"

namespace cohort::trainer {

// The kernels of reduce.cu, as the driver's cuModuleLoadData takes them.  Empty
// in a build without nvcc.
std::span<const std::byte> ReduceKernels();

// The kernel for one type and operation: "cohort_reduce_f32_sum".  Takes one
// ReduceArgs.  REQUIRES: not kAverage, which is a sum with a divisor.
std::string ReduceKernelName(DType dtype, ReduceOp op);

}  // namespace cohort::trainer
