#include "trainer/comm/reduce_kernels.h"

#include "absl/strings/str_cat.h"

#if defined(COHORT_HAVE_CUDA_KERNELS)
extern "C" {
// From the build (cmake/CohortCuda.cmake).
extern const std::byte cohort_reduce_kernels[];
extern const std::byte cohort_reduce_kernels_end[];
}
#endif

namespace cohort::trainer {

std::span<const std::byte> ReduceKernels() {
#if defined(COHORT_HAVE_CUDA_KERNELS)
  return {cohort_reduce_kernels, cohort_reduce_kernels_end};
#else
  return {};
#endif
}

std::string ReduceKernelName(DType dtype, ReduceOp op) {
  return absl::StrCat("cohort_reduce_", ToString(dtype), "_", ToString(op));
}

}  // namespace cohort::trainer
