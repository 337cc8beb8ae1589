#include "trainer/torch/adam.h"

#include <cstring>
#include <map>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/status_macros.h"
#include "common/status_util.h"
#include "trainer/adam.h"
#include "trainer/torch/torch_status.h"

namespace cohort::torch_adapter {
namespace {

using trainer::SafetensorsFile;
using trainer::TensorType;
using trainer::TensorView;

constexpr char kExpAvg[] = "exp_avg.";
constexpr char kExpAvgSq[] = "exp_avg_sq.";
constexpr char kMaster[] = "master.";
constexpr char kStep[] = "step";
constexpr char kSlotSteps[] = "steps";

template <typename T>
std::span<T> SpanOf(const torch::Tensor& tensor) {
  return {static_cast<T*>(tensor.data_ptr()),
          static_cast<size_t>(tensor.numel())};
}

bool HasMaster(const torch::Tensor& parameter) {
  return parameter.scalar_type() == torch::kHalf ||
         parameter.scalar_type() == torch::kBFloat16;
}

bool IsDense(const torch::Tensor& tensor) {
  return tensor.layout() == torch::kStrided &&
         tensor.is_non_overlapping_and_dense();
}

// Whether elements lie in the same order.
bool IsLaidOutAs(const torch::Tensor& tensor, const torch::Tensor& other) {
  return IsDense(tensor) && tensor.sizes() == other.sizes() &&
         ((tensor.is_contiguous() && other.is_contiguous()) ||
          tensor.strides() == other.strides());
}

// A slot's pass in the parameter's own type.
template <typename T>
void StepIn(const trainer::AdamOptions& options, int64_t step,
            const torch::Tensor& gradient, const torch::Tensor& parameter,
            const torch::Tensor& exp_avg, const torch::Tensor& exp_avg_sq) {
  trainer::AdamStep(options, step, std::span<const T>(SpanOf<T>(gradient)),
                    SpanOf<T>(parameter), SpanOf<T>(exp_avg),
                    SpanOf<T>(exp_avg_sq));
}

// A slot's pass in float32, behind 16 bits.
template <typename Half>
void StepBehind(const trainer::AdamFactors<float>& factors,
                const torch::Tensor& gradient, float gradient_scale,
                const torch::Tensor& master, const torch::Tensor& exp_avg,
                const torch::Tensor& exp_avg_sq, const torch::Tensor& rounded) {
  trainer::AdamStep(factors, gradient_scale,
                    std::span<const Half>(SpanOf<Half>(gradient)),
                    SpanOf<float>(master), SpanOf<float>(exp_avg),
                    SpanOf<float>(exp_avg_sq), SpanOf<Half>(rounded));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Adam>> Adam::Create(
    const torch::nn::Module& module, const trainer::AdamOptions& options) {
  std::unique_ptr<Adam> adam(new Adam(options));
  for (const auto& entry : module.named_parameters()) {
    const torch::Tensor& parameter = entry.value();
    if (!parameter.requires_grad()) continue;
    const bool known = parameter.scalar_type() == torch::kFloat32 ||
                       parameter.scalar_type() == torch::kFloat64 ||
                       HasMaster(parameter);
    if (!known || !IsDense(parameter)) {
      return absl::InvalidArgumentError(absl::StrCat(
          entry.key(), " must be dense and of floating point for Adam"));
    }
    COHORT_RETURN_IF_ERROR(Annotate(
        CatchTorch([&] {
          const auto type =
              HasMaster(parameter) ? torch::kFloat32 : parameter.scalar_type();
          const auto zeros = [&] {
            return torch::zeros_like(parameter.detach(),
                                     torch::TensorOptions(type));
          };
          adam->slots_.push_back(
              {entry.key(), parameter, zeros(), zeros(), torch::Tensor()});
          return absl::OkStatus();
        }),
        absl::StrCat("Adam's state of ", entry.key(), " on ",
                     parameter.device().str())));
  }
  return adam;
}

absl::Status Adam::Step(float gradient_scale) {
  COHORT_RETURN_IF_ERROR(CheckGradients());
  COHORT_RETURN_IF_ERROR(TakeMasters());
  ++step_;
  for (Slot& slot : slots_) {
    if (slot.parameter.grad().defined()) ++slot.step;
  }
  return Annotate(CatchTorch([&] {
                    for (const Slot& slot : slots_) {
                      if (!slot.parameter.is_cpu()) continue;
                      UpdateOnCpu(slot, gradient_scale);
                    }
                    UpdateOnDevice(gradient_scale);
                    return absl::OkStatus();
                  }),
                  absl::StrCat(Place(), "Adam's step ", step_));
}

std::string Adam::Place() const {
  if (slots_.empty()) return "";
  return absl::StrCat(slots_[0].parameter.device().str(), ": ");
}

absl::Status Adam::CheckGradients() const {
  for (const Slot& slot : slots_) {
    const torch::Tensor& gradient = slot.parameter.grad();
    if (!gradient.defined()) continue;
    if (!IsLaidOutAs(gradient, slot.parameter) ||
        gradient.device() != slot.parameter.device() ||
        gradient.scalar_type() != slot.parameter.scalar_type()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the gradient of ", slot.name,
                       " is not dense, or of another type, size, order of "
                       "memory or device than its parameter"));
    }
  }
  return absl::OkStatus();
}

absl::Status Adam::TakeMasters() {
  return Annotate(CatchTorch([this] {
                    for (Slot& slot : slots_) {
                      if (!HasMaster(slot.parameter) || slot.master.defined()) {
                        continue;
                      }
                      slot.master = slot.parameter.detach().to(torch::kFloat32);
                    }
                    return absl::OkStatus();
                  }),
                  absl::StrCat(Place(), "float32 masters"));
}

void Adam::UpdateOnCpu(const Slot& slot, float gradient_scale) const {
  const torch::Tensor& gradient = slot.parameter.grad();
  if (!gradient.defined()) return;
  if (slot.master.defined()) {
    const auto step = slot.parameter.scalar_type() == torch::kHalf
                          ? StepBehind<trainer::Float16>
                          : StepBehind<trainer::BFloat16>;
    step({options_, slot.step}, gradient, gradient_scale, slot.master,
         slot.exp_avg, slot.exp_avg_sq, slot.parameter);
  } else {
    const auto step = slot.parameter.scalar_type() == torch::kFloat32
                          ? StepIn<float>
                          : StepIn<double>;
    step(options_, slot.step,
         gradient_scale == 1 ? gradient : gradient.mul(gradient_scale),
         slot.parameter, slot.exp_avg, slot.exp_avg_sq);
  }
}

void Adam::UpdateOnDevice(float gradient_scale) const {
  // Of one type and step together: all of them, where all are used.
  enum Kind { kFloats, kDoubles, kMasters };
  std::map<std::pair<Kind, int64_t>, AdamTensors> groups;
  for (const Slot& slot : slots_) {
    const torch::Tensor& gradient = slot.parameter.grad();
    if (slot.parameter.is_cpu() || !gradient.defined()) continue;
    const bool is_double = slot.parameter.scalar_type() == torch::kFloat64;
    const Kind kind = slot.master.defined() ? kMasters
                      : is_double           ? kDoubles
                                            : kFloats;
    AdamTensors& together = groups[{kind, slot.step}];
    together.parameters.push_back(slot.master.defined() ? slot.master
                                                        : slot.parameter);
    together.gradients.push_back(gradient);
    together.exp_avg.push_back(slot.exp_avg);
    together.exp_avg_sq.push_back(slot.exp_avg_sq);
    if (slot.master.defined()) together.rounded.push_back(slot.parameter);
  }
  for (const auto& [key, tensors] : groups) {
    ForeachAdamStep({options_, key.second}, gradient_scale, tensors);
  }
}

absl::StatusOr<HostTensors> Adam::State() {
  COHORT_RETURN_IF_ERROR(TakeMasters());
  HostTensors state;
  for (const Slot& slot : slots_) {
    COHORT_RETURN_IF_ERROR(
        state.Add({absl::StrCat(kExpAvg, slot.name), slot.exp_avg}));
    COHORT_RETURN_IF_ERROR(
        state.Add({absl::StrCat(kExpAvgSq, slot.name), slot.exp_avg_sq}));
    if (!slot.master.defined()) continue;
    COHORT_RETURN_IF_ERROR(
        state.Add({absl::StrCat(kMaster, slot.name), slot.master}));
  }
  state.Add({kStep, TensorType::kI64, {}, std::as_bytes(std::span(&step_, 1))});
  slot_steps_.clear();
  for (const Slot& slot : slots_) slot_steps_.push_back(slot.step);
  state.Add({kSlotSteps,
             TensorType::kI64,
             {static_cast<int64_t>(slot_steps_.size())},
             std::as_bytes(std::span(slot_steps_))});
  return state;
}

absl::Status Adam::Load(const SafetensorsFile& file) {
  COHORT_RETURN_IF_ERROR(TakeMasters());
  for (Slot& slot : slots_) {
    COHORT_ASSIGN_OR_RETURN(const TensorView exp_avg,
                            file.Find(absl::StrCat(kExpAvg, slot.name)));
    COHORT_ASSIGN_OR_RETURN(const TensorView exp_avg_sq,
                            file.Find(absl::StrCat(kExpAvgSq, slot.name)));
    COHORT_RETURN_IF_ERROR(CopyInto(exp_avg, {slot.name, slot.exp_avg}));
    COHORT_RETURN_IF_ERROR(CopyInto(exp_avg_sq, {slot.name, slot.exp_avg_sq}));
    if (!slot.master.defined()) continue;
    COHORT_ASSIGN_OR_RETURN(const TensorView master,
                            file.Find(absl::StrCat(kMaster, slot.name)));
    COHORT_RETURN_IF_ERROR(CopyInto(master, {slot.name, slot.master}));
  }
  COHORT_ASSIGN_OR_RETURN(const TensorView step, file.Find(kStep));
  if (step.type != TensorType::kI64 || step.bytes.size() != sizeof(step_)) {
    return absl::InvalidArgumentError("the optimizer's step is not an int64");
  }
  COHORT_ASSIGN_OR_RETURN(const TensorView steps, file.Find(kSlotSteps));
  if (steps.type != TensorType::kI64 ||
      steps.bytes.size() != slots_.size() * sizeof(int64_t)) {
    return absl::InvalidArgumentError(
        "the optimizer's steps are of other parameters");
  }
  std::memcpy(&step_, step.bytes.data(), sizeof(step_));
  for (size_t i = 0; i < slots_.size(); ++i) {
    std::memcpy(&slots_[i].step, steps.bytes.data() + i * sizeof(int64_t),
                sizeof(int64_t));
  }
  return absl::OkStatus();
}

}  // namespace cohort::torch_adapter
