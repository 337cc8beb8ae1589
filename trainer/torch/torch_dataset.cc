#include "trainer/torch/torch_dataset.h"

#include <algorithm>

namespace cohort::torch_adapter {
namespace {

template <typename T>
absl::Status CopyAs(torch::ScalarType type, const torch::Tensor& from,
                    std::span<T> to) {
  if (from.numel() != static_cast<int64_t>(to.size())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the dataset gave ", from.numel(), " numbers where ", to.size(),
        " belong (every sample has as many as the "
        "first, and one label)"));
  }
  const torch::Tensor here =
      from.to(torch::Device(torch::kCPU), type).contiguous();
  std::copy_n(here.data_ptr<T>(), to.size(), to.data());
  return absl::OkStatus();
}

}  // namespace

absl::Status CopyNumbers(const torch::Tensor& from, std::span<float> to) {
  return CopyAs(torch::kFloat32, from, to);
}

absl::Status CopyNumbers(const torch::Tensor& from, std::span<int64_t> to) {
  return CopyAs(torch::kInt64, from, to);
}

}  // namespace cohort::torch_adapter
