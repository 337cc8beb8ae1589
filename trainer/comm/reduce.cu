// The reductions of trainer/comm/reduce.h on a GPU, bit for bit: ranks combined
// in rank order, no contraction (the build passes -fmad=false), integer sums
// wrap, NaN wins over everything.  16-bit floats are combined in 32 bits and
// rounded once.
//
// Only a NaN's sign and payload are others: a GPU's additions and conversions
// give canonical ones (CUDA C++ Programming Guide, "Floating-Point Standard"),
// where CPUs keep bits of an operand.
//
// One kernel for every type and operation, `cohort_reduce_<type>_<op>`: thread
// i reads element i of every source and writes the result to every destination.
// A divisor makes a sum an average; one source and many destinations a copy.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "trainer/comm/reduce_args.h"

namespace {

using cohort::trainer::ReduceArgs;

// What a type is combined in.
template <typename T>
struct Wide {
  using Type = T;
  static __device__ T From(T value) { return value; }
  static __device__ T To(T value) { return value; }
};
template <>
struct Wide<__half> {
  using Type = float;
  static __device__ float From(__half value) { return __half2float(value); }
  static __device__ __half To(float value) { return __float2half_rn(value); }
};
template <>
struct Wide<__nv_bfloat16> {
  using Type = float;
  static __device__ float From(__nv_bfloat16 v) { return __bfloat162float(v); }
  static __device__ __nv_bfloat16 To(float v) { return __float2bfloat16_rn(v); }
};

struct Sum {
  template <typename T>
  static __device__ T Apply(T a, T b) {
    return a + b;
  }
  static __device__ int32_t Apply(int32_t a, int32_t b) {
    return static_cast<int32_t>(static_cast<uint32_t>(a) +
                                static_cast<uint32_t>(b));
  }
  static __device__ int64_t Apply(int64_t a, int64_t b) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) +
                                static_cast<uint64_t>(b));
  }
};
// `a != a`: NaN on the left stays; on the right it fails the comparison and is
// taken.
struct Max {
  template <typename T>
  static __device__ T Apply(T a, T b) {
    return (a > b || a != a) ? a : b;
  }
};
struct Min {
  template <typename T>
  static __device__ T Apply(T a, T b) {
    return (a < b || a != a) ? a : b;
  }
};

// A run of elements that one thread moves at once.
template <typename T>
struct alignas(16) Pack {
  static constexpr int kElements = 16 / sizeof(T);
  T element[kElements];
};

template <typename T, typename Op, typename Run>
__device__ void ReduceRun(const ReduceArgs& args, uint64_t index) {
  using WideType = typename Wide<T>::Type;
  constexpr int kElements = sizeof(Run) / sizeof(T);
  WideType value[kElements];
  // As in reduce.cc: a power of two first, so that a mean is finite where its
  // values are.  Never of integers.
  WideType scale = 1;
  WideType divisor = static_cast<WideType>(args.divisor);
  while (divisor > 1) {
    scale /= 2;
    divisor /= 2;
  }
  const bool is_average = args.divisor != 1;
  const Run first = static_cast<const Run*>(args.source[0])[index];
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
    value[e] = Wide<T>::From(reinterpret_cast<const T*>(&first)[e]);
    if (is_average) value[e] *= scale;
  }
  // Four loads under way at a time.
#pragma unroll 4
  for (uint32_t i = 1; i < args.sources; ++i) {
    const Run run = static_cast<const Run*>(args.source[i])[index];
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      WideType next = Wide<T>::From(reinterpret_cast<const T*>(&run)[e]);
      if (is_average) next *= scale;
      value[e] = Op::Apply(value[e], next);
    }
  }
  Run result;
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
    if (is_average) value[e] /= divisor;
    reinterpret_cast<T*>(&result)[e] = Wide<T>::To(value[e]);
  }
  for (uint32_t i = 0; i < args.destinations; ++i) {
    static_cast<Run*>(args.destination[i])[index] = result;
  }
}

template <typename T, typename Op>
__device__ void Reduce(const ReduceArgs& args) {
  const uint64_t thread =
      static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const uint64_t threads = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  uint64_t done = 0;
  if (args.is_aligned != 0) {
    constexpr uint64_t kElements = Pack<T>::kElements;
    const uint64_t packs = args.count / kElements;
    for (uint64_t i = thread; i < packs; i += threads) {
      ReduceRun<T, Op, Pack<T>>(args, i);
    }
    done = packs * kElements;
  }
  for (uint64_t i = done + thread; i < args.count; i += threads) {
    ReduceRun<T, Op, T>(args, i);
  }
}

}  // namespace

#define COHORT_REDUCE(name, T, Op)                                    \
  extern "C" __global__ void __launch_bounds__(512)                   \
      cohort_reduce_##name(const __grid_constant__ ReduceArgs args) { \
    Reduce<T, Op>(args);                                              \
  }
#define COHORT_REDUCE_TYPE(type, T) \
  COHORT_REDUCE(type##_sum, T, Sum) \
  COHORT_REDUCE(type##_max, T, Max) \
  COHORT_REDUCE(type##_min, T, Min)

COHORT_REDUCE_TYPE(f32, float)
COHORT_REDUCE_TYPE(f64, double)
COHORT_REDUCE_TYPE(f16, __half)
COHORT_REDUCE_TYPE(bf16, __nv_bfloat16)
COHORT_REDUCE_TYPE(i32, int32_t)
COHORT_REDUCE_TYPE(i64, int64_t)
