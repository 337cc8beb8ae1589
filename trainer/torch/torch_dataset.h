#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "torch/data/example.h"
#include "torch/types.h"

#include "common/status_macros.h"
#include "trainer/dataset.h"
#include "trainer/torch/torch_status.h"

namespace cohort::torch_adapter {

// Copies all of the tensor's numbers, whatever their type and device.
// InvalidArgument when there are not as many as in `to`.  Throws what LibTorch
// throws.
absl::Status CopyNumbers(const torch::Tensor& from, std::span<float> to);
absl::Status CopyNumbers(const torch::Tensor& from, std::span<int64_t> to);

// A dataset of torch::data by ids, such as MNIST, also behind map(): its
// examples' data are the inputs, its targets the labels, one whole number each.
//
// Loaders with several workers call its get_batch from as many threads at once:
// it is to be one that only reads.
template <typename D>
class TorchDataset final : public trainer::Dataset {
  using Stacked = torch::data::Example<>;
  using Samples = typename D::BatchType;
  static_assert(std::is_same_v<Samples, Stacked> ||
                    std::is_same_v<Samples, std::vector<Stacked>>,
                "its examples are tensors with targets");

 public:
  // Reads the first sample, to know how large one is.  InvalidArgument when
  // there is none; INTERNAL is LibTorch's error.
  static absl::StatusOr<std::shared_ptr<const TorchDataset>> Create(D dataset) {
    std::shared_ptr<TorchDataset> made(new TorchDataset(std::move(dataset)));
    COHORT_RETURN_IF_ERROR(CatchTorch([&] { return made->Measure(); }));
    return made;
  }

  int64_t size() const override { return size_; }
  int64_t input_size() const override { return input_size_; }
  absl::Status Read(std::span<const int64_t> ids, std::span<float> inputs,
                    std::span<int64_t> labels) const override {
    return CatchTorch([&]() -> absl::Status {
      const torch::NoGradGuard no_gradients;
      const Samples samples =
          dataset_.get_batch(std::vector<size_t>(ids.begin(), ids.end()));
      if constexpr (std::is_same_v<Samples, Stacked>) {
        COHORT_RETURN_IF_ERROR(CopyNumbers(samples.data, inputs));
        return CopyNumbers(samples.target, labels);
      } else {
        const auto width = static_cast<size_t>(input_size_);
        for (size_t i = 0; i < samples.size(); ++i) {
          COHORT_RETURN_IF_ERROR(
              CopyNumbers(samples[i].data, inputs.subspan(i * width, width)));
          COHORT_RETURN_IF_ERROR(
              CopyNumbers(samples[i].target, labels.subspan(i, 1)));
        }
        return absl::OkStatus();
      }
    });
  }

 private:
  explicit TorchDataset(D dataset) : dataset_(std::move(dataset)) {}

  absl::Status Measure() {
    size_ = static_cast<int64_t>(dataset_.size().value_or(0));
    if (size_ == 0) {
      return absl::InvalidArgumentError(
          "the dataset is empty, or does not know its size");
    }
    const Samples first = dataset_.get_batch(std::vector<size_t>{0});
    if constexpr (std::is_same_v<Samples, Stacked>) {
      input_size_ = first.data.numel();
    } else {
      input_size_ = first.at(0).data.numel();
    }
    return absl::OkStatus();
  }

  mutable D dataset_;  // get_batch is not const
  int64_t size_ = 0;
  int64_t input_size_ = 0;
};

}  // namespace cohort::torch_adapter

namespace cohort::train {

// What Run::Loader and Evaluate take.
template <typename D>
auto FromTorch(D dataset) {
  return torch_adapter::TorchDataset<D>::Create(std::move(dataset));
}

}  // namespace cohort::train
