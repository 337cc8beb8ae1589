#include "trainer/comm/testing/fake_reduce.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "trainer/comm/comm.h"
#include "trainer/comm/float16.h"
#include "trainer/comm/reduce.h"
#include "trainer/comm/reduce_args.h"
#include "trainer/comm/reduce_kernels.h"

namespace cohort::trainer {
namespace {

float Quotient(float value, uint32_t divisor) {
  return value / static_cast<float>(divisor);
}
double Quotient(double value, uint32_t divisor) { return value / divisor; }
Float16 Quotient(Float16 value, uint32_t divisor) {
  return ToFloat16(Quotient(ToFloat(value), divisor));
}
BFloat16 Quotient(BFloat16 value, uint32_t divisor) {
  return ToBFloat16(Quotient(ToFloat(value), divisor));
}

template <typename T>
void Divide(const ReduceArgs& args) {
  for (uint32_t i = 0; i < args.destinations; ++i) {
    T* const values = static_cast<T*>(args.destination[i]);
    for (uint64_t e = 0; e < args.count; ++e) {
      values[e] = Quotient(values[e], args.divisor);
    }
  }
}

void Run(DType dtype, ReduceOp op, const ReduceArgs& args) {
  std::vector<const std::byte*> sources;
  for (uint32_t i = 0; i < args.sources; ++i) {
    sources.push_back(static_cast<const std::byte*>(args.source[i]));
  }
  std::vector<std::byte*> destinations;
  for (uint32_t i = 0; i < args.destinations; ++i) {
    destinations.push_back(static_cast<std::byte*>(args.destination[i]));
  }
  // Divided before it is rounded, as the kernel does, and CPUs.
  const bool is_average = args.divisor > 1 && args.divisor == args.sources;
  Reduce({.dtype = dtype,
          .op = is_average ? ReduceOp::kAverage : op,
          .sources = sources,
          .destinations = destinations},
         0, args.count);
  if (is_average || args.divisor == 1) return;
  if (dtype == DType::kF32) Divide<float>(args);
  if (dtype == DType::kF64) Divide<double>(args);
  if (dtype == DType::kF16) Divide<Float16>(args);
  if (dtype == DType::kBF16) Divide<BFloat16>(args);
}

}  // namespace

void AddReduceKernels(cuda::FakeDriver& driver) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kI32, DType::kI64,
                            DType::kF16, DType::kBF16}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
      driver.AddKernel(ReduceKernelName(dtype, op),
                       [dtype, op](void** parameters) -> std::function<void()> {
                         const auto args =
                             *static_cast<const ReduceArgs*>(parameters[0]);
                         return [dtype, op, args] { Run(dtype, op, args); };
                       });
    }
  }
}

}  // namespace cohort::trainer
