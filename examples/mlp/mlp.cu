// The kernels of kernel_args.h on a GPU: `cohort_mlp_<kernel>_<type>`, each
// with one of its Args.  The build passes -fmad=false; divisions and square
// roots are nvcc's defaults, correctly rounded.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "examples/mlp/kernel_args.h"
#include "examples/mlp/softmax_row.h"

namespace {

using cohort::mlp::AdamArgs;
using cohort::mlp::ColumnSumArgs;
using cohort::mlp::kThreads;
using cohort::mlp::kTile;
using cohort::mlp::NonFiniteArgs;
using cohort::mlp::ProductArgs;
using cohort::mlp::RoundArgs;
using cohort::mlp::SoftmaxArgs;

// How a type is read as f32 and rounded from it.
template <typename T>
struct Element;
template <>
struct Element<float> {
  static __host__ __device__ float From(float value) { return value; }
  static __host__ __device__ float To(float value) { return value; }
};
template <>
struct Element<__half> {
  static __host__ __device__ float From(__half v) { return __half2float(v); }
  static __host__ __device__ __half To(float v) { return __float2half_rn(v); }
};
template <>
struct Element<__nv_bfloat16> {
  static __host__ __device__ float From(__nv_bfloat16 v) {
    return __bfloat162float(v);
  }
  static __host__ __device__ __nv_bfloat16 To(float v) {
    return __float2bfloat16_rn(v);
  }
};

template <typename T>
__device__ float Load(const cohort::mlp::Matrix& matrix, uint32_t i,
                      uint32_t j) {
  return Element<T>::From(
      static_cast<const T*>(matrix.data)[i * matrix.row + j * matrix.column]);
}

__device__ uint64_t ThreadIndex() {
  return static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

// A block makes a tile of c; a thread four elements of one of its columns.
template <typename T>
__device__ void Product(const ProductArgs& args) {
  constexpr uint32_t kRows = kTile * kTile / kThreads;
  constexpr uint32_t kStride = kThreads / kTile;
  // A column more, so that a warp that fills or reads one meets no bank twice.
  __shared__ float a_tile[kTile][kTile + 1];
  __shared__ float b_tile[kTile][kTile + 1];
  const uint32_t row = blockIdx.y * kTile;
  const uint32_t column = blockIdx.x * kTile;
  const uint32_t fast = threadIdx.x % kTile;
  const uint32_t slow = threadIdx.x / kTile;
  float sum[kRows] = {};
  for (uint32_t begin = 0; begin < args.depth; begin += kTile) {
    for (uint32_t r = slow; r < kTile; r += kStride) {
      // Neighbouring threads read neighbouring elements.
      const uint32_t i = args.a.column == 1 ? r : fast;
      const uint32_t a_k = args.a.column == 1 ? fast : r;
      a_tile[i][a_k] = row + i < args.m && begin + a_k < args.depth
                           ? Load<T>(args.a, row + i, begin + a_k)
                           : 0.0f;
      const uint32_t b_k = args.b.column == 1 ? r : fast;
      const uint32_t j = args.b.column == 1 ? fast : r;
      b_tile[b_k][j] = begin + b_k < args.depth && column + j < args.n
                           ? Load<T>(args.b, begin + b_k, column + j)
                           : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (uint32_t k = 0; k < kTile; ++k) {
      const float b = b_tile[k][fast];
#pragma unroll
      for (uint32_t r = 0; r < kRows; ++r) {
        sum[r] += a_tile[slow + r * kStride][k] * b;
      }
    }
    __syncthreads();
  }
  const uint32_t j = column + fast;
  if (j >= args.n) return;
#pragma unroll
  for (uint32_t r = 0; r < kRows; ++r) {
    const uint32_t i = row + slow + r * kStride;
    if (i >= args.m) continue;
    const uint64_t at = static_cast<uint64_t>(i) * args.n + j;
    float value = sum[r];
    if (args.bias != nullptr) {
      value += Element<T>::From(static_cast<const T*>(args.bias)[j]);
    }
    // NaN passes.
    if (args.is_rectified != 0 && value < 0) value = 0;
    if (args.mask != nullptr &&
        Element<T>::From(static_cast<const T*>(args.mask)[at]) <= 0) {
      value = 0;
    }
    static_cast<T*>(args.c)[at] = Element<T>::To(value);
  }
}

template <typename T>
__device__ void ColumnSum(const ColumnSumArgs& args) {
  const uint64_t j = ThreadIndex();
  if (j >= args.columns) return;
  const T* const values = static_cast<const T*>(args.values);
  float sum = 0;
  for (uint64_t i = 0; i < args.rows; ++i) {
    sum += Element<T>::From(values[i * args.columns + j]);
  }
  static_cast<T*>(args.sums)[j] = Element<T>::To(sum);
}

template <typename T>
__device__ void Softmax(const SoftmaxArgs& args) {
  const uint64_t row = ThreadIndex();
  if (row >= args.rows) return;
  cohort::mlp::SoftmaxRow<T, Element<T>>(args, static_cast<uint32_t>(row));
}

template <typename T>
__device__ void Adam(const AdamArgs& args) {
  const uint64_t i = ThreadIndex();
  if (i >= args.count) return;
  const auto& f = args.factors;
  const float g = Element<T>::From(static_cast<const T*>(args.gradients)[i]) *
                  args.gradient_scale;
  const float m = args.exp_avg[i] * f.beta1 + g * f.fresh1;
  const float v = args.exp_avg_sq[i] * f.beta2 + f.fresh2 * g * g;
  args.exp_avg[i] = m;
  args.exp_avg_sq[i] = v;
  const float denominator = sqrtf(v) / f.root_bias2 + f.eps;
  const float parameter = args.parameters[i] - f.step_size * (m / denominator);
  args.parameters[i] = parameter;
  if (args.rounded != nullptr) {
    static_cast<T*>(args.rounded)[i] = Element<T>::To(parameter);
  }
}

template <typename T>
__device__ void NonFinite(const NonFiniteArgs& args) {
  const uint64_t i = ThreadIndex();
  if (i >= args.count) return;
  const float value = Element<T>::From(static_cast<const T*>(args.values)[i]);
  // What is not finite is no number when it is subtracted from itself.
  if (value - value != 0) *args.found = 1;
}

template <typename T>
__device__ void Round(const RoundArgs& args) {
  const uint64_t i = ThreadIndex();
  if (i >= args.count) return;
  static_cast<T*>(args.rounded)[i] = Element<T>::To(args.values[i]);
}

}  // namespace

#define COHORT_KERNEL(name, type, Args, Body)                         \
  extern "C" __global__ void __launch_bounds__(cohort::mlp::kThreads) \
      cohort_mlp_##name(const __grid_constant__ Args args) {          \
    Body<type>(args);                                                 \
  }
#define COHORT_KERNELS(suffix, type)                                 \
  COHORT_KERNEL(product_##suffix, type, ProductArgs, Product)        \
  COHORT_KERNEL(column_sum_##suffix, type, ColumnSumArgs, ColumnSum) \
  COHORT_KERNEL(softmax_##suffix, type, SoftmaxArgs, Softmax)        \
  COHORT_KERNEL(adam_##suffix, type, AdamArgs, Adam)                 \
  COHORT_KERNEL(non_finite_##suffix, type, NonFiniteArgs, NonFinite) \
  COHORT_KERNEL(round_##suffix, type, RoundArgs, Round)

COHORT_KERNELS(f32, float)
COHORT_KERNELS(f16, __half)
COHORT_KERNELS(bf16, __nv_bfloat16)
