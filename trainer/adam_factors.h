#pragma once

// Also compiled by nvcc, which knows C++17: for kernels that step elsewhere.

#include <cmath>
#include <cstdint>

namespace cohort::trainer {

// The defaults are PyTorch's.
struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
};

// The scalars of step `step`, which counts from 1, in the precision of the
// parameters.  With gradient g and the moments m and v, in this order:
//
//   m = m * beta1 + g * fresh1
//   v = v * beta2 + fresh2 * g * g
//   parameter -= step_size * (m / (sqrt(v) / root_bias2 + eps))
template <typename T>
struct AdamFactors {
  AdamFactors() = default;
  AdamFactors(const AdamOptions& options, int64_t step)
      : beta1(static_cast<T>(options.beta1)),
        beta2(static_cast<T>(options.beta2)),
        fresh1(static_cast<T>(1 - options.beta1)),
        fresh2(static_cast<T>(1 - options.beta2)),
        root_bias2(static_cast<T>(
            std::sqrt(1 - std::pow(options.beta2, static_cast<double>(step))))),
        eps(static_cast<T>(options.eps)),
        step_size(static_cast<T>(
            options.lr /
            (1 - std::pow(options.beta1, static_cast<double>(step))))) {}

  T beta1 = 0, beta2 = 0, fresh1 = 0, fresh2 = 0, root_bias2 = 1, eps = 0;
  T step_size = 0;
};

}  // namespace cohort::trainer
