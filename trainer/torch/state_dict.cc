#include "trainer/torch/state_dict.h"

#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "torch/utils.h"

#include "common/real_clock.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "trainer/torch/device_marks.h"
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
    case torch::kHalf:
      return TensorType::kF16;
    case torch::kBFloat16:
      return TensorType::kBF16;
    case torch::kBool:
      return TensorType::kBool;
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

absl::Status CheckStrided(const NamedTensor& named) {
  if (named.tensor.layout() == torch::kStrided) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(named.name,
                   " must be dense (it is sparse, or of a library's "
                   "own layout)"));
}

absl::Status CheckPlain(const NamedTensor& named) {
  if (named.tensor.layout() == torch::kStrided &&
      named.tensor.is_contiguous()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(named.name, " must be dense and contiguous"));
}

// Not every tensor has memory.
absl::StatusOr<void*> MemoryOf(const NamedTensor& named) {
  void* memory = nullptr;
  COHORT_RETURN_IF_ERROR(Annotate(CatchTorch([&] {
                                    memory = named.tensor.data_ptr();
                                    return absl::OkStatus();
                                  }),
                                  named.name));
  return memory;
}

// Copies between host and device wait for what was begun there, without a
// deadline of their own.
absl::Status Settle(torch::Device device) {
  if (device.is_cpu()) return absl::OkStatus();
  std::unique_ptr<DeviceMarks> marks;
  COHORT_RETURN_IF_ERROR(CatchTorch([&] {
    marks = MakeDeviceMarks(device);
    return absl::OkStatus();
  }));
  const MachineClock clock;
  return AwaitBegun(*marks, 0, "what was begun before",
                    {.clock = clock, .timeout = kPassTimeout});
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
  COHORT_RETURN_IF_ERROR(CheckStrided(named));
  const std::optional<TensorType> type = FileType(named.tensor.scalar_type());
  if (!type) return UnknownType(named);
  return TensorView{named.name, *type, named.tensor.sizes().vec(), {}};
}

// Of the same shape and type.
absl::Status CopyBytes(const TensorView& source, const torch::Tensor& target) {
  if (target.is_cpu() && target.is_contiguous()) {
    std::memcpy(target.data_ptr(), source.bytes.data(), source.bytes.size());
    return absl::OkStatus();
  }
  absl::Status copied = Settle(target.device());
  if (copied.ok()) {
    copied = CatchTorch([&] {
      const torch::NoGradGuard no_gradients;
      // copy_ returns when the source may be gone, since that is not pinned.
      target.copy_(TensorAt(const_cast<std::byte*>(source.bytes.data()),
                            target.sizes(), target.scalar_type(),
                            torch::Device(torch::kCPU)));
      return absl::OkStatus();
    });
  }
  return Annotate(copied, absl::StrCat("copying ", source.name, " to ",
                                       target.device().str()));
}

absl::StatusOr<torch::Tensor> HostCopy(const NamedTensor& named) {
  torch::Tensor copy;
  absl::Status copied = Settle(named.tensor.device());
  if (copied.ok()) {
    copied = CatchTorch([&] {
      copy = named.tensor.detach().cpu().contiguous();
      return absl::OkStatus();
    });
  }
  COHORT_RETURN_IF_ERROR(
      Annotate(copied, absl::StrCat("copying ", named.name, " from ",
                                    named.tensor.device().str())));
  return copy;
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
  COHORT_RETURN_IF_ERROR(CheckPlain(named));
  COHORT_ASSIGN_OR_RETURN(TensorView view, ShapeOf(named));
  if (!named.tensor.is_cpu()) {
    return absl::InvalidArgumentError(absl::StrCat(
        named.name, " is on ", named.tensor.device().str(), ", not the CPU"));
  }
  COHORT_ASSIGN_OR_RETURN(void* const memory, MemoryOf(named));
  view.bytes =
      std::span(static_cast<const std::byte*>(memory), named.tensor.nbytes());
  return view;
}

absl::StatusOr<Buffer> BufferOf(const NamedTensor& named) {
  COHORT_RETURN_IF_ERROR(CheckStrided(named));
  if (!named.tensor.is_non_overlapping_and_dense()) {
    return absl::InvalidArgumentError(
        absl::StrCat(named.name,
                     " must have its memory for itself and without gaps (give "
                     "the module a clone() of it)"));
  }
  const std::optional<DType> type = CommType(named.tensor.scalar_type());
  if (!type) return UnknownType(named);
  COHORT_ASSIGN_OR_RETURN(void* const memory, MemoryOf(named));
  return Buffer{memory, static_cast<size_t>(named.tensor.numel()), *type};
}

absl::Status HostTensors::Add(const NamedTensor& named) {
  NamedTensor here = named;
  if (!named.tensor.is_cpu() || !named.tensor.is_contiguous()) {
    COHORT_RETURN_IF_ERROR(CheckStrided(named));
    COHORT_ASSIGN_OR_RETURN(here.tensor, HostCopy(named));
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
