#include "examples/mlp/cpu_kernels.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/round_up.h"
#include "examples/mlp/kernel_args.h"
#include "examples/mlp/softmax_row.h"
#include "trainer/adam.h"
#include "trainer/comm/float16.h"
#include "trainer/finite.h"

// Clang under a sanitizer cannot run what chooses between them.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define COHORT_VECTOR_WIDTHS \
  __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define COHORT_VECTOR_WIDTHS
#endif

namespace cohort::mlp {
namespace {

using trainer::AdamStep;
using trainer::BFloat16;
using trainer::DType;
using trainer::Float16;

// How a type is read as f32 and rounded from it.
template <typename T>
struct Element;
template <>
struct Element<float> {
  static constexpr DType kType = DType::kF32;
  static float From(float value) { return value; }
  static float To(float value) { return value; }
};
template <>
struct Element<Float16> {
  static constexpr DType kType = DType::kF16;
  static float From(Float16 value) { return trainer::ToFloat(value); }
  static Float16 To(float value) { return trainer::ToFloat16(value); }
};
template <>
struct Element<BFloat16> {
  static constexpr DType kType = DType::kBF16;
  static float From(BFloat16 value) { return trainer::ToFloat(value); }
  static BFloat16 To(float value) { return trainer::ToBFloat16(value); }
};

// What is multiplied at a time: as many sums as stay in registers.
constexpr size_t kRows = 4;
constexpr size_t kColumns = 16;
// Arrays of sums would be written to memory and read again for each k.
using Sums = float __attribute__((vector_size(kColumns * sizeof(float))));

// sums = a * b for kRows rows of a, `stride` apart, and a panel of b.  Each sum
// grows in the order of k.
COHORT_VECTOR_WIDTHS
void MultiplyPanel(size_t depth, const float* a, size_t stride,
                   const float* panel, float (*sums)[kColumns]) {
  Sums local[kRows] = {};
  for (size_t k = 0; k < depth; ++k) {
    Sums b;
    std::memcpy(&b, panel + k * kColumns, sizeof(b));
    for (size_t r = 0; r < kRows; ++r) local[r] += a[r * stride + k] * b;
  }
  std::memcpy(sums, local, sizeof(local));
}

template <typename T>
float Load(const Matrix& matrix, size_t i, size_t j) {
  return Element<T>::From(
      static_cast<const T*>(matrix.data)[i * matrix.row + j * matrix.column]);
}

// a in f32, rows of `depth`; zeroes up to a multiple of kRows.
template <typename T>
std::vector<float> PackRows(const ProductArgs& args) {
  const size_t depth = args.depth;
  std::vector<float> rows(RoundUp(args.m, kRows) * depth);
  for (size_t i = 0; i < args.m; ++i) {
    for (size_t k = 0; k < depth; ++k) {
      rows[i * depth + k] = Load<T>(args.a, i, k);
    }
  }
  return rows;
}

// kColumns columns of b from `begin` in f32, zeroes behind the last.
template <typename T>
void PackPanel(const ProductArgs& args, size_t begin,
               std::vector<float>& panel) {
  const size_t end = std::min<size_t>(args.n, begin + kColumns);
  for (size_t k = 0; k < args.depth; ++k) {
    for (size_t j = begin; j < end; ++j) {
      panel[k * kColumns + j - begin] = Load<T>(args.b, k, j);
    }
  }
}

template <typename T>
void Store(const ProductArgs& args, size_t i, size_t j, float sum) {
  const size_t at = i * args.n + j;
  float value = sum;
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

template <typename T>
void Product(const ProductArgs& args) {
  const std::vector<float> rows = PackRows<T>(args);
  float sums[kRows][kColumns];
  for (size_t column = 0; column < args.n; column += kColumns) {
    std::vector<float> panel(args.depth * kColumns);
    PackPanel<T>(args, column, panel);
    for (size_t row = 0; row < args.m; row += kRows) {
      MultiplyPanel(args.depth, rows.data() + row * args.depth, args.depth,
                    panel.data(), sums);
      for (size_t i = row; i < std::min<size_t>(args.m, row + kRows); ++i) {
        for (size_t j = column; j < std::min<size_t>(args.n, column + kColumns);
             ++j) {
          Store<T>(args, i, j, sums[i - row][j - column]);
        }
      }
    }
  }
}

template <typename T>
void ColumnSum(const ColumnSumArgs& args) {
  const T* const values = static_cast<const T*>(args.values);
  std::vector<float> sums(args.columns);
  for (size_t i = 0; i < args.rows; ++i) {
    for (size_t j = 0; j < args.columns; ++j) {
      sums[j] += Element<T>::From(values[i * args.columns + j]);
    }
  }
  for (size_t j = 0; j < args.columns; ++j) {
    static_cast<T*>(args.sums)[j] = Element<T>::To(sums[j]);
  }
}

template <typename T>
void Softmax(const SoftmaxArgs& args) {
  for (uint32_t row = 0; row < args.rows; ++row) {
    SoftmaxRow<T, Element<T>>(args, row);
  }
}

template <typename T>
void Adam(const AdamArgs& args) {
  const std::span<const T> gradients(static_cast<const T*>(args.gradients),
                                     args.count);
  const std::span<float> parameters(args.parameters, args.count);
  const std::span<float> exp_avg(args.exp_avg, args.count);
  const std::span<float> exp_avg_sq(args.exp_avg_sq, args.count);
  if constexpr (std::is_same_v<T, float>) {
    AdamStep(args.factors, gradients, parameters, exp_avg, exp_avg_sq);
  } else {
    AdamStep(args.factors, args.gradient_scale, gradients, parameters, exp_avg,
             exp_avg_sq, std::span(static_cast<T*>(args.rounded), args.count));
  }
}

template <typename T>
void NonFinite(const NonFiniteArgs& args) {
  const trainer::Buffer values = {const_cast<void*>(args.values), args.count,
                                  Element<T>::kType};
  if (!trainer::AllFinite(std::span(&values, 1))) *args.found = 1;
}

template <typename T>
void Round(const RoundArgs& args) {
  T* const rounded = static_cast<T*>(args.rounded);
  for (size_t i = 0; i < args.count; ++i) {
    rounded[i] = Element<T>::To(args.values[i]);
  }
}

template <typename Args, void (*kRun)(const Args&)>
void Run(const void* args) {
  kRun(*static_cast<const Args*>(args));
}

template <typename T>
void AddKernels(std::vector<CpuKernel>& kernels) {
  const auto add = [&kernels](Kernel kernel, size_t args_bytes,
                              void (*run)(const void*)) {
    kernels.push_back({kernel, Element<T>::kType, args_bytes, run});
  };
  add(Kernel::kProduct, sizeof(ProductArgs), Run<ProductArgs, Product<T>>);
  add(Kernel::kColumnSum, sizeof(ColumnSumArgs),
      Run<ColumnSumArgs, ColumnSum<T>>);
  add(Kernel::kSoftmax, sizeof(SoftmaxArgs), Run<SoftmaxArgs, Softmax<T>>);
  add(Kernel::kAdam, sizeof(AdamArgs), Run<AdamArgs, Adam<T>>);
  add(Kernel::kNonFinite, sizeof(NonFiniteArgs),
      Run<NonFiniteArgs, NonFinite<T>>);
  add(Kernel::kRound, sizeof(RoundArgs), Run<RoundArgs, Round<T>>);
}

absl::string_view NameOf(Kernel kernel) {
  switch (kernel) {
    case Kernel::kProduct:
      return "product";
    case Kernel::kColumnSum:
      return "column_sum";
    case Kernel::kSoftmax:
      return "softmax";
    case Kernel::kAdam:
      return "adam";
    case Kernel::kNonFinite:
      return "non_finite";
    case Kernel::kRound:
      return "round";
  }
  return "unknown";
}

}  // namespace

std::string KernelName(Kernel kernel, DType dtype) {
  return absl::StrCat("cohort_mlp_", NameOf(kernel), "_",
                      trainer::ToString(dtype));
}

std::span<const CpuKernel> CpuKernels() {
  static const auto& kernels = *[] {
    auto* const all = new std::vector<CpuKernel>;
    AddKernels<float>(*all);
    AddKernels<Float16>(*all);
    AddKernels<BFloat16>(*all);
    return all;
  }();
  return kernels;
}

}  // namespace cohort::mlp
