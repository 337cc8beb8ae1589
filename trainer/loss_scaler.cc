#include "trainer/loss_scaler.h"

#include "absl/strings/str_cat.h"

namespace cohort::trainer {
namespace {

// False for NaN, too.
bool IsScale(float scale) {
  return scale >= kLossScaleMin && scale <= kLossScaleMax;
}

absl::Status NoScale(float scale) {
  return absl::InvalidArgumentError(absl::StrCat("a loss scale of ", scale,
                                                 "; it is from ", kLossScaleMin,
                                                 " to ", kLossScaleMax));
}

}  // namespace

absl::StatusOr<LossScaler> LossScaler::Create(LossScalerOptions options) {
  if (!IsScale(options.initial_scale)) return NoScale(options.initial_scale);
  if (!(options.growth_factor > 1) || options.growth_factor > kLossScaleMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a growth factor of ", options.growth_factor, "; it is more than 1"));
  }
  if (!(options.backoff_factor > 0 && options.backoff_factor < 1)) {
    return absl::InvalidArgumentError(absl::StrCat("a backoff factor of ",
                                                   options.backoff_factor,
                                                   "; it is between 0 and 1"));
  }
  if (options.growth_interval < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a growth interval of ", options.growth_interval, " steps"));
  }
  return LossScaler(options);
}

float LossScaler::inverse_scale() const {
  return static_cast<float>(1.0 / static_cast<double>(state_.scale));
}

absl::Status LossScaler::Update(bool all_finite) {
  if (!all_finite) {
    const float lower = state_.scale * options_.backoff_factor;
    if (!IsScale(lower)) {
      return absl::OutOfRangeError(
          absl::StrCat("gradients are infinite or NaN even at a loss scale of ",
                       state_.scale,
                       ": lower the learning rate, or look for damaged input"));
    }
    state_ = {.scale = lower};
    return absl::OkStatus();
  }
  if (++state_.good_steps < options_.growth_interval) return absl::OkStatus();
  const float higher = state_.scale * options_.growth_factor;
  state_ = {.scale = IsScale(higher) ? higher : state_.scale};
  return absl::OkStatus();
}

absl::Status LossScaler::Restore(const LossScalerState& state) {
  if (!IsScale(state.scale)) return NoScale(state.scale);
  if (state.good_steps < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a loss scale after ", state.good_steps, " good steps"));
  }
  state_ = state;
  return absl::OkStatus();
}

}  // namespace cohort::trainer
