#pragma once

#include <cstdint>
#include <span>

#include "trainer/adam_factors.h"
#include "trainer/comm/float16.h"

namespace cohort::trainer {

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
void AdamStep(const AdamFactors<float>& factors,
              std::span<const float> gradients, std::span<float> parameters,
              std::span<float> exp_avg, std::span<float> exp_avg_sq);

// The same step in mixed precision, still in one pass: `parameters` are the f32
// masters, `gradients` 16-bit ones of a loss that was multiplied by
// 1 / gradient_scale (LossScaler::inverse_scale(), or 1).  They are widened and
// multiplied by gradient_scale in f32, so that nothing is lost to a second
// rounding, and `rounded` becomes the masters in 16 bits, for the next forward
// pass.  All gradients are finite, or the step is not taken (AllFinite).
// REQUIRES: spans of equal size.
void AdamStep(const AdamFactors<float>& factors, float gradient_scale,
              std::span<const Float16> gradients, std::span<float> parameters,
              std::span<float> exp_avg, std::span<float> exp_avg_sq,
              std::span<Float16> rounded);
void AdamStep(const AdamFactors<float>& factors, float gradient_scale,
              std::span<const BFloat16> gradients, std::span<float> parameters,
              std::span<float> exp_avg, std::span<float> exp_avg_sq,
              std::span<BFloat16> rounded);

}  // namespace cohort::trainer
