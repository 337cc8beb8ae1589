#pragma once

// One row of SoftmaxArgs, the same code on CPUs and GPUs.  Also compiled by
// nvcc, which knows C++17.

#include <cmath>
#include <cstdint>
#include <cstring>

#include "examples/mlp/kernel_args.h"

#ifdef __CUDACC__
#define COHORT_EVERYWHERE __host__ __device__ inline
#else
#define COHORT_EVERYWHERE inline
#endif

namespace cohort::mlp {

// e^x for x <= 0, off by at most some units in the last place, and the same
// bits everywhere: multiplications and additions only.  NaN stays NaN; below
// the normal numbers it is 0.
COHORT_EVERYWHERE float Exp(float x) {
  if (!(x > -87.0f)) return x == x ? 0.0f : x;
  // x = n ln 2 + r, |r| <= ln 2 / 2; ln 2 in two parts, the first short enough
  // for an exact product (Cody and Waite, 1980).
  const float n = rintf(x * 1.44269504f);
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  // Taylor's series, whose eighth term is below f32's precision here.
  float sum = 1.0f / 5040;
  sum = sum * r + 1.0f / 720;
  sum = sum * r + 1.0f / 120;
  sum = sum * r + 1.0f / 24;
  sum = sum * r + 1.0f / 6;
  sum = sum * r + 0.5f;
  sum = sum * r + 1.0f;
  sum = sum * r + 1.0f;
  const uint32_t bits = static_cast<uint32_t>(static_cast<int32_t>(n) + 127)
                        << 23;
  float power = 0;
  memcpy(&power, &bits, sizeof(power));
  return sum * power;
}

// `Element` has From(T) to f32 and To(float), rounding to nearest.
template <typename T, typename Element>
COHORT_EVERYWHERE void SoftmaxRow(const SoftmaxArgs& args, uint32_t row) {
  const uint64_t begin = static_cast<uint64_t>(row) * args.classes;
  const T* const logits = static_cast<const T*>(args.logits) + begin;
  T* const gradients = static_cast<T*>(args.gradients) + begin;
  const uint32_t label = static_cast<uint32_t>(args.labels[row]);
  float largest = Element::From(logits[0]);
  for (uint32_t i = 1; i < args.classes; ++i) {
    const float logit = Element::From(logits[i]);
    if (logit > largest) largest = logit;
  }
  float sum = 0;
  for (uint32_t i = 0; i < args.classes; ++i) {
    sum += Exp(Element::From(logits[i]) - largest);
  }
  for (uint32_t i = 0; i < args.classes; ++i) {
    const float share = Exp(Element::From(logits[i]) - largest) / sum;
    const float gradient = i == label ? share - 1.0f : share;
    gradients[i] = Element::To(gradient * args.scale);
  }
  args.losses[2 * row] = sum;
  args.losses[2 * row + 1] = largest - Element::From(logits[label]);
}

}  // namespace cohort::mlp
