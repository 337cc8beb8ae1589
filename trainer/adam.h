#pragma once

#include <cstdint>
#include <span>

namespace cohort::trainer {

// The defaults are PyTorch's.
struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
};

// One Adam step over a run of parameters, as torch.optim.Adam computes it, in
// one pass over memory instead of PyTorch's ten (which cost a third of a small
// network's step on CPU).  `step` counts from 1.  Results do not depend on the
// machine's vector width.
// REQUIRES: spans of equal size.
void AdamStep(const AdamOptions& options, int64_t step,
              std::span<const float> gradients, std::span<float> parameters,
              std::span<float> exp_avg, std::span<float> exp_avg_sq);
void AdamStep(const AdamOptions& options, int64_t step,
              std::span<const double> gradients, std::span<double> parameters,
              std::span<double> exp_avg, std::span<double> exp_avg_sq);

}  // namespace cohort::trainer
