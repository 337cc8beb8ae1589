#include "trainer/torch/adam.h"

#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/status_macros.h"
#include "trainer/torch/state_dict.h"

namespace cohort::torch_adapter {
namespace {

using trainer::SafetensorsFile;
using trainer::TensorType;
using trainer::TensorView;

constexpr char kExpAvg[] = "exp_avg.";
constexpr char kExpAvgSq[] = "exp_avg_sq.";
constexpr char kStep[] = "step";

template <typename T>
std::span<T> SpanOf(const torch::Tensor& tensor) {
  return {static_cast<T*>(tensor.data_ptr()),
          static_cast<size_t>(tensor.numel())};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Adam>> Adam::Create(
    const torch::nn::Module& module, const trainer::AdamOptions& options) {
  std::unique_ptr<Adam> adam(new Adam(options));
  for (const auto& entry : module.named_parameters()) {
    const torch::Tensor& parameter = entry.value();
    if (!parameter.requires_grad()) continue;
    const bool known = parameter.scalar_type() == torch::kFloat32 ||
                       parameter.scalar_type() == torch::kFloat64;
    if (!known || !parameter.is_contiguous()) {
      return absl::InvalidArgumentError(absl::StrCat(
          entry.key(), " must be contiguous float32 or float64 for Adam"));
    }
    const torch::Tensor plain = parameter.detach();
    adam->slots_.push_back({entry.key(), parameter, torch::zeros_like(plain),
                            torch::zeros_like(plain)});
  }
  return adam;
}

absl::Status Adam::Step() {
  ++step_;
  for (Slot& slot : slots_) {
    const torch::Tensor& gradient = slot.parameter.grad();
    if (!gradient.defined()) continue;
    if (!gradient.is_contiguous() ||
        gradient.scalar_type() != slot.parameter.scalar_type()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the gradient of ", slot.name,
          " is not contiguous or of another type than its parameter"));
    }
    if (slot.parameter.scalar_type() == torch::kFloat32) {
      Update<float>(slot, gradient);
    } else {
      Update<double>(slot, gradient);
    }
  }
  return absl::OkStatus();
}

template <typename T>
void Adam::Update(Slot& slot, const torch::Tensor& gradient) {
  trainer::AdamStep(options_, step_, std::span<const T>(SpanOf<T>(gradient)),
                    SpanOf<T>(slot.parameter), SpanOf<T>(slot.exp_avg),
                    SpanOf<T>(slot.exp_avg_sq));
}

absl::StatusOr<std::vector<TensorView>> Adam::State() const {
  std::vector<TensorView> state;
  for (const Slot& slot : slots_) {
    COHORT_ASSIGN_OR_RETURN(
        TensorView exp_avg,
        ViewOf({absl::StrCat(kExpAvg, slot.name), slot.exp_avg}));
    COHORT_ASSIGN_OR_RETURN(
        TensorView exp_avg_sq,
        ViewOf({absl::StrCat(kExpAvgSq, slot.name), slot.exp_avg_sq}));
    state.push_back(std::move(exp_avg));
    state.push_back(std::move(exp_avg_sq));
  }
  state.push_back(
      {kStep, TensorType::kI64, {}, std::as_bytes(std::span(&step_, 1))});
  return state;
}

absl::Status Adam::Load(const SafetensorsFile& file) {
  for (Slot& slot : slots_) {
    COHORT_ASSIGN_OR_RETURN(const TensorView exp_avg,
                            file.Find(absl::StrCat(kExpAvg, slot.name)));
    COHORT_ASSIGN_OR_RETURN(const TensorView exp_avg_sq,
                            file.Find(absl::StrCat(kExpAvgSq, slot.name)));
    COHORT_RETURN_IF_ERROR(CopyInto(exp_avg, {slot.name, slot.exp_avg}));
    COHORT_RETURN_IF_ERROR(CopyInto(exp_avg_sq, {slot.name, slot.exp_avg_sq}));
  }
  COHORT_ASSIGN_OR_RETURN(const TensorView step, file.Find(kStep));
  if (step.type != TensorType::kI64 || step.bytes.size() != sizeof(step_)) {
    return absl::InvalidArgumentError("the optimizer's step is no int64");
  }
  std::memcpy(&step_, step.bytes.data(), sizeof(step_));
  return absl::OkStatus();
}

}  // namespace cohort::torch_adapter
