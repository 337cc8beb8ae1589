#include "trainer/torch/state_dict.h"

#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "torch/utils.h"

#include "common/status_macros.h"
#include "trainer/torch/device_memory.h"
#include "trainer/torch/torch_status.h"

namespace cohort::torch_adapter {
namespace {

using trainer::Buffer;
using trainer::DType;
using trainer::SafetensorsFile;
using trainer::TensorType;
using trainer::TensorView;

std::optional<TensorType> FileType(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat32:
      return TensorType::kF32;
    case torch::kFloat64:
      return TensorType::kF64;
    case torch::kInt64:
      return TensorType::kI64;
    case torch::kInt32:
      return TensorType::kI32;
    case torch::kUInt8:
      return TensorType::kU8;
    default:
      return std::nullopt;
  }
}

std::optional<DType> CommType(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat32:
      return DType::kF32;
    case torch::kFloat64:
      return DType::kF64;
    case torch::kInt64:
      return DType::kI64;
    case torch::kInt32:
      return DType::kI32;
    case torch::kHalf:
      return DType::kF16;
    case torch::kBFloat16:
      return DType::kBF16;
    default:
      return std::nullopt;
  }
}

absl::Status CheckPlain(const NamedTensor& named) {
  if (named.tensor.is_contiguous()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(named.name, " must be contiguous"));
}

absl::Status UnknownType(const NamedTensor& named) {
  return absl::InvalidArgumentError(absl::StrCat(
      named.name, " is of type ", torch::toString(named.tensor.scalar_type()),
      ", which is not supported here"));
}

std::string Describe(absl::string_view type,
                     const std::vector<int64_t>& shape) {
  return absl::StrCat(type, " [", absl::StrJoin(shape, ","), "]");
}

absl::Status CheckSame(const TensorView& source, const TensorView& target) {
  if (source.type == target.type && source.shape == target.shape) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(target.name, " is ",
                   Describe(trainer::TensorTypeName(target.type), target.shape),
                   " in the model and ",
                   Describe(trainer::TensorTypeName(source.type), source.shape),
                   " in the file"));
}

// An entry without its bytes.
absl::StatusOr<TensorView> ShapeOf(const NamedTensor& named) {
  COHORT_RETURN_IF_ERROR(CheckPlain(named));
  const std::optional<TensorType> type = FileType(named.tensor.scalar_type());
  if (!type) return UnknownType(named);
  return TensorView{named.name, *type, named.tensor.sizes().vec(), {}};
}

// Of the same shape and type.
absl::Status CopyBytes(const TensorView& source, const torch::Tensor& target) {
  if (target.is_cpu()) {
    std::memcpy(target.data_ptr(), source.bytes.data(), source.bytes.size());
    return absl::OkStatus();
  }
  return CatchTorch([&] {
    const torch::NoGradGuard no_gradients;
    // copy_ returns when the source may be gone, since that is not pinned.
    target.copy_(TensorAt(const_cast<std::byte*>(source.bytes.data()),
                          target.sizes(), target.scalar_type(),
                          torch::Device(torch::kCPU)));
    return absl::OkStatus();
  });
}

}  // namespace

std::vector<NamedTensor> NamedTensors(const torch::nn::Module& module) {
  std::vector<NamedTensor> all;
  for (const auto& entry : module.named_parameters()) {
    all.push_back({entry.key(), entry.value()});
  }
  for (const auto& entry : module.named_buffers()) {
    all.push_back({entry.key(), entry.value()});
  }
  return all;
}

absl::StatusOr<TensorView> ViewOf(const NamedTensor& named) {
  COHORT_ASSIGN_OR_RETURN(TensorView view, ShapeOf(named));
  if (!named.tensor.is_cpu()) {
    return absl::InvalidArgumentError(absl::StrCat(
        named.name, " is on ", named.tensor.device().str(), ", not the CPU"));
  }
  view.bytes = std::span(static_cast<const std::byte*>(named.tensor.data_ptr()),
                         named.tensor.nbytes());
  return view;
}

absl::StatusOr<Buffer> BufferOf(const NamedTensor& named) {
  COHORT_RETURN_IF_ERROR(CheckPlain(named));
  const std::optional<DType> type = CommType(named.tensor.scalar_type());
  if (!type) return UnknownType(named);
  return Buffer{named.tensor.data_ptr(),
                static_cast<size_t>(named.tensor.numel()), *type};
}

absl::Status HostTensors::Add(const NamedTensor& named) {
  NamedTensor here = named;
  if (!named.tensor.is_cpu()) {
    COHORT_RETURN_IF_ERROR(CheckPlain(named));
    COHORT_RETURN_IF_ERROR(CatchTorch([&here] {
      here.tensor = here.tensor.detach().cpu();
      return absl::OkStatus();
    }));
    copies_.push_back(here.tensor);
  }
  COHORT_ASSIGN_OR_RETURN(TensorView view, ViewOf(here));
  Add(std::move(view));
  return absl::OkStatus();
}

absl::StatusOr<HostTensors> StateDict(const torch::nn::Module& module) {
  HostTensors state;
  for (const NamedTensor& named : NamedTensors(module)) {
    COHORT_RETURN_IF_ERROR(state.Add(named));
  }
  return state;
}

absl::Status LoadStateDict(const SafetensorsFile& file,
                           const torch::nn::Module& module) {
  std::vector<std::pair<TensorView, torch::Tensor>> copies;
  std::set<std::string> wanted;
  for (const NamedTensor& named : NamedTensors(module)) {
    COHORT_ASSIGN_OR_RETURN(const TensorView target, ShapeOf(named));
    const auto source = file.Find(named.name);
    if (!source.ok()) {
      return absl::InvalidArgumentError(source.status().message());
    }
    COHORT_RETURN_IF_ERROR(CheckSame(*source, target));
    wanted.insert(named.name);
    copies.emplace_back(*source, named.tensor);
  }
  for (const TensorView& tensor : file.tensors()) {
    if (!wanted.contains(tensor.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the model has no tensor ", tensor.name));
    }
  }
  for (const auto& [source, target] : copies) {
    COHORT_RETURN_IF_ERROR(CopyBytes(source, target));
  }
  return absl::OkStatus();
}

absl::Status CopyInto(const TensorView& source, const NamedTensor& target) {
  COHORT_ASSIGN_OR_RETURN(const TensorView shape, ShapeOf(target));
  COHORT_RETURN_IF_ERROR(CheckSame(source, shape));
  return CopyBytes(source, target.tensor);
}

}  // namespace cohort::torch_adapter
