#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cohort::trainer {

// The defaults are those of PyTorch's torch.amp.GradScaler.
struct LossScalerOptions {
  float initial_scale = 65536;
  float growth_factor = 2;      // more than 1
  float backoff_factor = 0.5f;  // between 0 and 1
  int64_t growth_interval = 2000;
};

// What a checkpoint keeps of a scaler.
struct LossScalerState {
  float scale = 65536;
  int64_t good_steps = 0;  // since the scale last changed

  friend bool operator==(const LossScalerState&,
                         const LossScalerState&) = default;
};

// Within these a scale and its inverse are normal numbers, also after some 16
// halvings in a row from the start: gradients that overflow even then do so for
// another reason, such as a NaN in the model.
inline constexpr float kLossScaleMin = 0x1.0p-16f;
inline constexpr float kLossScaleMax = 0x1.0p+126f;

// Dynamic loss scaling for gradients in binary16, whose smallest number is too
// large for many of them (P. Micikevicius et al., "Mixed Precision Training",
// 2018).  The loss is multiplied by scale() before backward, gradients by
// inverse_scale() before they are used.  When they overflow, the step is left
// out and the scale halved; after 2000 good steps it is doubled.
//
//   LS-1: the verdict is the gang's.  It is taken of the gradients behind the
//         reduction (AllFinite of GradientReducer::buffers()), which are the
//         same bits on all ranks (RD-1), and infinity and NaN of any one rank
//         are in them: reduced by kSum or kAverage they give infinity or NaN,
//         over every backend.  So nothing needs to be sent for it.  (kMax and
//         kMin would not do: NCCL's may drop a NaN.)  Nobody judges before the
//         reduction, and who reduces only a part of the gradients must first
//         ask the others.
//   LS-2: scalers that began alike and heard the same verdicts are alike, after
//         a restart from state(), too.
//
//   loop:  Backward(loss * scaler.scale()); reducer.Reduce();
//          const bool finite = AllFinite(reducer.buffers());
//          if (finite) AdamStep(..., scaler.inverse_scale(), ...);
//          scaler.Update(finite);
//
// bfloat16 has the range of f32 and needs none.  Thread-compatible.
class LossScaler {
 public:
  // InvalidArgument names the option that makes no sense.
  static absl::StatusOr<LossScaler> Create(LossScalerOptions options = {});

  float scale() const { return state_.scale; }
  // Rounded once; exact for powers of two, which the defaults stay on.
  float inverse_scale() const;

  // Takes the verdict on a step's gradients.  A scale grows no further than
  // kLossScaleMax.  OutOfRange when it would fall below kLossScaleMin; it stays
  // as it is then.
  absl::Status Update(bool all_finite);

  const LossScalerState& state() const { return state_; }
  // Goes on from `state`.  InvalidArgument for one that no scaler had;
  // unchanged then.
  absl::Status Restore(const LossScalerState& state);

 private:
  explicit LossScaler(LossScalerOptions options)
      : options_(options), state_{.scale = options.initial_scale} {}

  LossScalerOptions options_;
  LossScalerState state_;
};

}  // namespace cohort::trainer
