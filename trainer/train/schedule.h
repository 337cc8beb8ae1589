#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace cohort::train {

// Learning rates by step: of the step alone, so that a run that goes on has
// nothing to restore.
//
//   optimizer.SetLearningRate(cohort::train::CosineRate(
//       {.peak = 0.1, .warm_up = 500, .steps = 10'000}, run.step()));

struct CosineSchedule {
  double peak = 0;
  int64_t warm_up = 0;  // steps, over which the rate grows from peak / warm_up
  int64_t steps = 0;    // of the run; behind them the rate is `floor`
  double floor = 0;
};

// Linear up, then half a cosine down (I. Loshchilov and F. Hutter, "SGDR",
// 2017, without restarts).  `step` counts from 0.
inline double CosineRate(const CosineSchedule& schedule, int64_t step) {
  if (step < schedule.warm_up) {
    return schedule.peak * static_cast<double>(step + 1) /
           static_cast<double>(schedule.warm_up);
  }
  const auto down = static_cast<double>(schedule.steps - schedule.warm_up);
  const double done =
      down <= 0
          ? 1
          : std::min(1.0, static_cast<double>(step - schedule.warm_up) / down);
  return schedule.floor + (schedule.peak - schedule.floor) *
                              (1 + std::cos(std::numbers::pi * done)) / 2;
}

struct StepSchedule {
  double first = 0;
  int64_t every = 1;  // steps, behind which it is multiplied
  double factor = 0.1;
};

// PyTorch's StepLR.
inline double StepRate(const StepSchedule& schedule, int64_t step) {
  return schedule.first *
         std::pow(
             schedule.factor,
             static_cast<double>(step / std::max<int64_t>(schedule.every, 1)));
}

}  // namespace cohort::train
