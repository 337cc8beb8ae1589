#pragma once

// What the network's kernels do and take.  There are two of each: one of mlp.cu
// on a GPU, one of cpu_kernels.cc, which give the same bits: sums in f32 in the
// order that is said here, no contraction, one rounding to the element type at
// the end.  Also compiled by nvcc, which knows C++17.
//
// Elements are f32, f16 or bf16, alike in all of a launch's matrices; matrices
// are row-major without gaps where nothing else is said.

#include <cstdint>

#include "trainer/adam_factors.h"

namespace cohort::mlp {

inline constexpr uint32_t kThreads = 256;  // of a block
inline constexpr uint32_t kTile = 32;  // a block's part of a product, squared

// Element (i, j) is data[i * row + j * column].
struct Matrix {
  const void* data;
  uint64_t row;
  uint64_t column;
};

// c[i, j], of m x n: the sum over k of a[i, k] * b[k, j], k ascending from a
// sum of 0, plus bias[j] if there is one; then 0 where it is negative if
// is_rectified, and 0 where mask[i, j] is not positive if there is one.
struct ProductArgs {
  Matrix a;
  Matrix b;
  const void* bias;
  const void* mask;
  void* c;
  uint32_t m;
  uint32_t n;
  uint32_t depth;
  uint32_t is_rectified;
};

// sums[j]: the sum over i of values[i, j], of rows x columns, i ascending.
struct ColumnSumArgs {
  const void* values;
  void* sums;
  uint32_t rows;
  uint32_t columns;
};

// For each row: gradients of the cross entropy of softmax(logits) and the
// label, times `scale`, and two numbers of which the host makes the loss, since
// logarithms differ from machine to machine: log(losses[2 i]) + losses[2 i +
// 1].
struct SoftmaxArgs {
  const void* logits;
  const int64_t* labels;
  void* gradients;
  float* losses;
  float scale;
  uint32_t rows;
  uint32_t classes;
};

// One step of Adam, as trainer/adam.h has it: f32 masters, and for 16-bit
// elements `rounded`, null for f32.
struct AdamArgs {
  const void* gradients;
  float* parameters;
  float* exp_avg;
  float* exp_avg_sq;
  void* rounded;
  uint64_t count;
  float gradient_scale;  // 1 for f32
  trainer::AdamFactors<float> factors;
};

// Sets *found to 1 when one of the values is infinite or NaN; else leaves it.
struct NonFiniteArgs {
  const void* values;
  uint32_t* found;
  uint64_t count;
};

// rounded[i]: values[i] as an element.
struct RoundArgs {
  const float* values;
  void* rounded;
  uint64_t count;
};

}  // namespace cohort::mlp
