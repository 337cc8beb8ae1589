#include "trainer/adam.h"

#include <cmath>
#include <cstddef>

// The loops once for each vector width, chosen when the program starts.  Clang
// under a sanitizer cannot run such choosers, and it is for debugging here.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define COHORT_VECTOR_WIDTHS \
  __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define COHORT_VECTOR_WIDTHS
#endif

namespace cohort::trainer {
namespace {

// One parameter's new value.
template <typename T>
[[gnu::always_inline]] inline T Advance(const AdamFactors<T>& f, T g,
                                        T parameter, T& exp_avg,
                                        T& exp_avg_sq) {
  const T m = exp_avg * f.beta1 + g * f.fresh1;
  const T v = exp_avg_sq * f.beta2 + f.fresh2 * g * g;
  exp_avg = m;
  exp_avg_sq = v;
  const T denominator = std::sqrt(v) / f.root_bias2 + f.eps;
  return parameter - f.step_size * (m / denominator);
}

template <typename T>
[[gnu::always_inline]] inline void Update(const AdamFactors<T> f, size_t size,
                                          const T* __restrict gradients,
                                          T* __restrict parameters,
                                          T* __restrict exp_avg,
                                          T* __restrict exp_avg_sq) {
  for (size_t i = 0; i < size; ++i) {
    parameters[i] =
        Advance(f, gradients[i], parameters[i], exp_avg[i], exp_avg_sq[i]);
  }
}

[[gnu::always_inline]] inline void Round(float value, Float16& to) {
  to = ToFloat16(value);
}
[[gnu::always_inline]] inline void Round(float value, BFloat16& to) {
  to = ToBFloat16(value);
}

template <typename Half>
[[gnu::always_inline]] inline void UpdateMixed(
    const AdamFactors<float> f, float gradient_scale, size_t size,
    const Half* __restrict gradients, float* __restrict parameters,
    float* __restrict exp_avg, float* __restrict exp_avg_sq,
    Half* __restrict rounded) {
  for (size_t i = 0; i < size; ++i) {
    const float g = ToFloat(gradients[i]) * gradient_scale;
    const float p = Advance(f, g, parameters[i], exp_avg[i], exp_avg_sq[i]);
    parameters[i] = p;
    Round(p, rounded[i]);
  }
}

COHORT_VECTOR_WIDTHS
void UpdateFloats(const AdamFactors<float>& factors, size_t size,
                  const float* gradients, float* parameters, float* exp_avg,
                  float* exp_avg_sq) {
  Update(factors, size, gradients, parameters, exp_avg, exp_avg_sq);
}

COHORT_VECTOR_WIDTHS
void UpdateDoubles(const AdamFactors<double>& factors, size_t size,
                   const double* gradients, double* parameters, double* exp_avg,
                   double* exp_avg_sq) {
  Update(factors, size, gradients, parameters, exp_avg, exp_avg_sq);
}

COHORT_VECTOR_WIDTHS
void UpdateFloat16s(const AdamFactors<float>& factors, float gradient_scale,
                    size_t size, const Float16* gradients, float* parameters,
                    float* exp_avg, float* exp_avg_sq, Float16* rounded) {
  UpdateMixed(factors, gradient_scale, size, gradients, parameters, exp_avg,
              exp_avg_sq, rounded);
}

COHORT_VECTOR_WIDTHS
void UpdateBFloat16s(const AdamFactors<float>& factors, float gradient_scale,
                     size_t size, const BFloat16* gradients, float* parameters,
                     float* exp_avg, float* exp_avg_sq, BFloat16* rounded) {
  UpdateMixed(factors, gradient_scale, size, gradients, parameters, exp_avg,
              exp_avg_sq, rounded);
}

}  // namespace

void AdamStep(const AdamOptions& options, int64_t step,
              std::span<const float> gradients, std::span<float> parameters,
              std::span<float> exp_avg, std::span<float> exp_avg_sq) {
  AdamStep(AdamFactors<float>(options, step), gradients, parameters, exp_avg,
           exp_avg_sq);
}

void AdamStep(const AdamFactors<float>& factors,
              std::span<const float> gradients, std::span<float> parameters,
              std::span<float> exp_avg, std::span<float> exp_avg_sq) {
  UpdateFloats(factors, gradients.size(), gradients.data(), parameters.data(),
               exp_avg.data(), exp_avg_sq.data());
}

void AdamStep(const AdamOptions& options, int64_t step,
              std::span<const double> gradients, std::span<double> parameters,
              std::span<double> exp_avg, std::span<double> exp_avg_sq) {
  UpdateDoubles(AdamFactors<double>(options, step), gradients.size(),
                gradients.data(), parameters.data(), exp_avg.data(),
                exp_avg_sq.data());
}

void AdamStep(const AdamFactors<float>& factors, float gradient_scale,
              std::span<const Float16> gradients, std::span<float> parameters,
              std::span<float> exp_avg, std::span<float> exp_avg_sq,
              std::span<Float16> rounded) {
  UpdateFloat16s(factors, gradient_scale, gradients.size(), gradients.data(),
                 parameters.data(), exp_avg.data(), exp_avg_sq.data(),
                 rounded.data());
}

void AdamStep(const AdamFactors<float>& factors, float gradient_scale,
              std::span<const BFloat16> gradients, std::span<float> parameters,
              std::span<float> exp_avg, std::span<float> exp_avg_sq,
              std::span<BFloat16> rounded) {
  UpdateBFloat16s(factors, gradient_scale, gradients.size(), gradients.data(),
                  parameters.data(), exp_avg.data(), exp_avg_sq.data(),
                  rounded.data());
}

}  // namespace cohort::trainer
