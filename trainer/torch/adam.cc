#include "trainer/torch/adam.h"

#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/status_macros.h"
#include "trainer/torch/torch_status.h"

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
  AdamTensors floats, doubles;  // of a device
  for (Slot& slot : slots_) {
    const torch::Tensor& gradient = slot.parameter.grad();
    if (!gradient.defined()) continue;
    if (!gradient.is_contiguous() ||
        gradient.scalar_type() != slot.parameter.scalar_type()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the gradient of ", slot.name,
          " is not contiguous or of another type than its parameter"));
    }
    const bool is_float = slot.parameter.scalar_type() == torch::kFloat32;
    if (!slot.parameter.is_cpu()) {
      AdamTensors& together = is_float ? floats : doubles;
      together.parameters.push_back(slot.parameter);
      together.gradients.push_back(gradient);
      together.exp_avg.push_back(slot.exp_avg);
      together.exp_avg_sq.push_back(slot.exp_avg_sq);
    } else if (is_float) {
      Update<float>(slot, gradient);
    } else {
      Update<double>(slot, gradient);
    }
  }
  COHORT_RETURN_IF_ERROR(UpdateTogether(floats));
  return UpdateTogether(doubles);
}

absl::Status Adam::UpdateTogether(const AdamTensors& tensors) const {
  return CatchTorch([&] {
    ForeachAdamStep({options_, step_}, tensors);
    return absl::OkStatus();
  });
}

template <typename T>
void Adam::Update(Slot& slot, const torch::Tensor& gradient) {
  trainer::AdamStep(options_, step_, std::span<const T>(SpanOf<T>(gradient)),
                    SpanOf<T>(slot.parameter), SpanOf<T>(slot.exp_avg),
                    SpanOf<T>(slot.exp_avg_sq));
}

absl::StatusOr<HostTensors> Adam::State() const {
  HostTensors state;
  for (const Slot& slot : slots_) {
    COHORT_RETURN_IF_ERROR(
        state.Add({absl::StrCat(kExpAvg, slot.name), slot.exp_avg}));
    COHORT_RETURN_IF_ERROR(
        state.Add({absl::StrCat(kExpAvgSq, slot.name), slot.exp_avg_sq}));
  }
  state.Add({kStep, TensorType::kI64, {}, std::as_bytes(std::span(&step_, 1))});
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
