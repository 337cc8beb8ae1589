#include "examples/mlp/network.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "trainer/comm/float16.h"

namespace cohort::mlp {
namespace {

using trainer::BFloat16;
using trainer::DType;
using trainer::Float16;
using trainer::GradientReducer;
using trainer::GradientShape;

// Rounds `values` to elements of `dtype`.
void RoundTo(DType dtype, std::span<const float> values, std::byte* to) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kF16) {
      reinterpret_cast<Float16*>(to)[i] = trainer::ToFloat16(values[i]);
    } else if (dtype == DType::kBF16) {
      reinterpret_cast<BFloat16*>(to)[i] = trainer::ToBFloat16(values[i]);
    } else {
      reinterpret_cast<float*>(to)[i] = values[i];
    }
  }
}

float ElementOf(DType dtype, const std::byte* from, size_t index) {
  if (dtype == DType::kF16) {
    return trainer::ToFloat(reinterpret_cast<const Float16*>(from)[index]);
  }
  if (dtype == DType::kBF16) {
    return trainer::ToFloat(reinterpret_cast<const BFloat16*>(from)[index]);
  }
  return reinterpret_cast<const float*>(from)[index];
}

Matrix RowMajor(const std::byte* data, int64_t columns) {
  return {data, static_cast<uint64_t>(columns), 1};
}
Matrix Transposed(const std::byte* data, int64_t columns) {
  return {data, 1, static_cast<uint64_t>(columns)};
}

absl::Status CheckOptions(const NetworkOptions& options) {
  const NetworkShape& shape = options.shape;
  for (const int64_t size : {shape.inputs, shape.hidden, shape.hidden_layers,
                             shape.classes, options.batch_max}) {
    if (size < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("a network with a size of ", size));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Network>> Network::Create(
    Device& device, trainer::Comm& comm, const NetworkOptions& options) {
  COHORT_RETURN_IF_ERROR(CheckOptions(options));
  if (comm.allocates_on_device() && !device.is_gpu()) {
    return absl::InvalidArgumentError(
        "the communicator's memory is the GPU's, and the network's is not");
  }
  std::unique_ptr<Network> network(new Network(device, comm, options));
  const NetworkShape& shape = options.shape;
  for (int64_t i = 0; i <= shape.hidden_layers; ++i) {
    network->layers_.push_back(
        {.inputs = i == 0 ? shape.inputs : shape.hidden,
         .outputs = i == shape.hidden_layers ? shape.classes : shape.hidden});
  }
  COHORT_RETURN_IF_ERROR(network->PlaceGradients());
  COHORT_RETURN_IF_ERROR(network->AllocateMemory());
  COHORT_RETURN_IF_ERROR(network->DrawWeights());
  return network;
}

Network::~Network() {
  if (gradients_ != nullptr && device_.Mark(0).ok()) {
    device_.Await(0, /*look=*/nullptr).IgnoreError();
  }
}

absl::Status Network::PlaceGradients() {
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    const std::string name = absl::StrCat("fc", i + 1);
    parameters_.push_back(
        {.name = name + ".weight", .shape = {layer.outputs, layer.inputs}});
    parameters_.push_back({.name = name + ".bias", .shape = {layer.outputs}});
  }
  std::vector<GradientShape> shapes;
  for (Parameter& parameter : parameters_) {
    parameter.size = 1;
    for (const int64_t size : parameter.shape) parameter.size *= size;
    shapes.push_back({parameter.name, parameter.size, options_.precision});
  }
  COHORT_ASSIGN_OR_RETURN(
      reducer_,
      GradientReducer::Create(comm_, std::move(shapes), options_.reducer));
  for (const trainer::Bucket& bucket : reducer_->buckets()) {
    // The last slice is of the earliest layer.
    bucket_layers_.push_back(bucket.slices.back().gradient / 2);
    elements_ += bucket.bytes / SizeOf(options_.precision);
    for (const trainer::BucketSlice& slice : bucket.slices) {
      parameters_[slice.gradient].offset =
          slice.offset / SizeOf(options_.precision);
    }
  }
  for (size_t i = 0; i < layers_.size(); ++i) {
    layers_[i].weight = parameters_[2 * i].offset;
    layers_[i].bias = parameters_[2 * i + 1].offset;
  }
  is_staged_ = device_.is_gpu() != comm_.allocates_on_device();
  if (!is_staged_) {
    gradients_ = static_cast<std::byte*>(reducer_->buffers()[0].data);
    return absl::OkStatus();
  }
  COHORT_ASSIGN_OR_RETURN(
      gradients_, device_.Allocate(elements_ * SizeOf(options_.precision)));
  return absl::OkStatus();
}

absl::Status Network::AllocateMemory() {
  const size_t element = SizeOf(options_.precision);
  for (std::byte** const memory : {&masters_, &exp_avg_, &exp_avg_sq_}) {
    COHORT_ASSIGN_OR_RETURN(*memory,
                            device_.Allocate(elements_ * sizeof(float)));
  }
  weights_ = masters_;
  if (options_.precision != DType::kF32) {
    COHORT_ASSIGN_OR_RETURN(weights_, device_.Allocate(elements_ * element));
  }
  const auto batch = static_cast<size_t>(options_.batch_max);
  const size_t inputs = batch * options_.shape.inputs;
  for (size_t i = 0; i < samples_.size(); ++i) {
    Samples& samples = samples_[i];
    COHORT_ASSIGN_OR_RETURN(samples.inputs,
                            device_.Allocate(inputs * sizeof(float)));
    COHORT_ASSIGN_OR_RETURN(samples.labels,
                            device_.Allocate(batch * sizeof(int64_t)));
    samples.mark = reducer_->buckets().size() + i;  // behind the buckets'
  }
  activations_ = {nullptr};
  if (options_.precision != DType::kF32) {
    COHORT_ASSIGN_OR_RETURN(activations_[0],
                            device_.Allocate(inputs * element));
  }
  deltas_ = {nullptr};
  for (const Layer& layer : layers_) {
    const size_t bytes = batch * layer.outputs * element;
    COHORT_ASSIGN_OR_RETURN(activations_.emplace_back(),
                            device_.Allocate(bytes));
    COHORT_ASSIGN_OR_RETURN(deltas_.emplace_back(), device_.Allocate(bytes));
  }
  COHORT_ASSIGN_OR_RETURN(losses_, device_.Allocate(batch * 2 * sizeof(float)));
  COHORT_ASSIGN_OR_RETURN(non_finite_, device_.Allocate(sizeof(uint32_t)));
  return absl::OkStatus();
}

absl::Status Network::DrawWeights() {
  SeededRandom random(options_.seed);
  std::vector<float> masters(elements_);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& parameter = parameters_[i];
    const double bound =
        1 / std::sqrt(static_cast<double>(layers_[i / 2].inputs));
    for (size_t k = 0; k < parameter.size; ++k) {
      masters[parameter.offset + k] =
          static_cast<float>((2 * random.Double() - 1) * bound);
    }
  }
  return StoreMasters(masters);
}

absl::Status Network::StoreMasters(const std::vector<float>& masters) {
  COHORT_RETURN_IF_ERROR(
      device_.Upload(masters_, std::as_bytes(std::span(masters))));
  if (weights_ == masters_) return absl::OkStatus();
  std::vector<std::byte> rounded(elements_ * SizeOf(options_.precision));
  RoundTo(options_.precision, masters, rounded.data());
  return device_.Upload(weights_, rounded);
}

std::byte* Network::ElementAt(std::byte* base, size_t offset) const {
  return base + offset * SizeOf(options_.precision);
}

int64_t Network::parameter_count() const {
  int64_t count = 0;
  for (const Parameter& parameter : parameters_) {
    count += static_cast<int64_t>(parameter.size);
  }
  return count;
}

void Network::CheckSamples(std::span<const float> inputs,
                           std::span<const int64_t> labels) const {
  COHORT_CHECK(!labels.empty() &&
               labels.size() <= static_cast<size_t>(options_.batch_max));
  COHORT_CHECK(inputs.size() ==
               labels.size() * static_cast<size_t>(options_.shape.inputs));
  for (const int64_t label : labels) {
    COHORT_CHECK(label >= 0 && label < options_.shape.classes);
  }
}

absl::Status Network::Prefetch(std::span<const float> inputs,
                               std::span<const int64_t> labels) {
  CheckSamples(inputs, labels);
  Samples& samples = samples_[next_];
  COHORT_CHECK(samples.rows == 0);
  samples.rows = static_cast<uint32_t>(labels.size());
  const Device::Copy copies[] = {{samples.inputs, std::as_bytes(inputs)},
                                 {samples.labels, std::as_bytes(labels)}};
  return device_.BeginUploads(copies, samples.mark);
}

absl::Status Network::Forward(const Samples& samples) {
  if (options_.precision == DType::kF32) {
    activations_[0] = samples.inputs;
  } else {
    COHORT_RETURN_IF_ERROR(device_.Launch(
        options_.precision,
        RoundArgs{.values = reinterpret_cast<const float*>(samples.inputs),
                  .rounded = activations_[0],
                  .count = static_cast<uint64_t>(samples.rows) *
                           static_cast<uint64_t>(options_.shape.inputs)}));
  }
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    COHORT_RETURN_IF_ERROR(device_.Launch(
        options_.precision,
        ProductArgs{
            .a = RowMajor(activations_[i], layer.inputs),
            .b = Transposed(ElementAt(weights_, layer.weight), layer.inputs),
            .bias = ElementAt(weights_, layer.bias),
            .mask = nullptr,
            .c = activations_[i + 1],
            .m = samples.rows,
            .n = static_cast<uint32_t>(layer.outputs),
            .depth = static_cast<uint32_t>(layer.inputs),
            .is_rectified = i + 1 < layers_.size()}));
  }
  return absl::OkStatus();
}

absl::Status Network::Backward(float loss_scale) {
  Samples& samples = samples_[next_];
  COHORT_CHECK(samples.rows > 0);
  rows_ = samples.rows;
  COHORT_RETURN_IF_ERROR(device_.JoinUploads());
  COHORT_RETURN_IF_ERROR(Forward(samples));
  COHORT_RETURN_IF_ERROR(device_.Launch(
      options_.precision,
      SoftmaxArgs{.logits = activations_.back(),
                  .labels = reinterpret_cast<const int64_t*>(samples.labels),
                  .gradients = deltas_.back(),
                  .losses = reinterpret_cast<float*>(losses_),
                  .scale = loss_scale / static_cast<float>(rows_),
                  .rows = rows_,
                  .classes = static_cast<uint32_t>(options_.shape.classes)}));
  for (size_t i = layers_.size(); i-- > 0;) {
    COHORT_RETURN_IF_ERROR(BackwardThrough(i, rows_));
  }
  samples.rows = 0;
  next_ = (next_ + 1) % samples_.size();
  return device_.Mark(samples.mark);
}

absl::Status Network::BackwardThrough(size_t index, uint32_t rows) {
  const Layer& layer = layers_[index];
  const auto inputs = static_cast<uint32_t>(layer.inputs);
  const auto outputs = static_cast<uint32_t>(layer.outputs);
  const std::byte* const delta = deltas_[index + 1];
  COHORT_RETURN_IF_ERROR(device_.Launch(
      options_.precision,
      ProductArgs{.a = Transposed(delta, layer.outputs),
                  .b = RowMajor(activations_[index], layer.inputs),
                  .bias = nullptr,
                  .mask = nullptr,
                  .c = ElementAt(gradients_, layer.weight),
                  .m = outputs,
                  .n = inputs,
                  .depth = rows,
                  .is_rectified = 0}));
  COHORT_RETURN_IF_ERROR(
      device_.Launch(options_.precision,
                     ColumnSumArgs{.values = delta,
                                   .sums = ElementAt(gradients_, layer.bias),
                                   .rows = rows,
                                   .columns = outputs}));
  COHORT_RETURN_IF_ERROR(MarkBuckets(index));
  if (index == 0) return absl::OkStatus();
  return device_.Launch(
      options_.precision,
      ProductArgs{
          .a = RowMajor(delta, layer.outputs),
          .b = RowMajor(ElementAt(weights_, layer.weight), layer.inputs),
          .bias = nullptr,
          // A rectified activation is positive where its input was.
          .mask = activations_[index],
          .c = deltas_[index],
          .m = rows,
          .n = inputs,
          .depth = outputs,
          .is_rectified = 0});
}

absl::Status Network::MarkBuckets(size_t layer) {
  for (size_t i = 0; i < bucket_layers_.size(); ++i) {
    if (bucket_layers_[i] != layer) continue;
    COHORT_RETURN_IF_ERROR(device_.Mark(i));
  }
  return absl::OkStatus();
}

absl::Status Network::Reduce() {
  if (is_staged_) return ReduceThroughHost();
  return reducer_->ReduceAsReady([this](size_t bucket) {
    return device_.Await(bucket, [this] { return comm_.CheckPeers(); });
  });
}

absl::Status Network::ReduceThroughHost() {
  if (comm_.world() == 1) return absl::OkStatus();
  const std::span<std::byte> host(
      static_cast<std::byte*>(reducer_->buffers()[0].data),
      elements_ * SizeOf(options_.precision));
  COHORT_RETURN_IF_ERROR(device_.Download(host, gradients_));
  COHORT_RETURN_IF_ERROR(reducer_->Reduce());
  return device_.Upload(gradients_, host);
}

absl::StatusOr<bool> Network::AllFinite() {
  uint32_t found = 0;
  COHORT_RETURN_IF_ERROR(
      device_.Upload(non_finite_, std::as_bytes(std::span(&found, 1))));
  COHORT_RETURN_IF_ERROR(device_.Launch(
      options_.precision,
      NonFiniteArgs{.values = gradients_,
                    .found = reinterpret_cast<uint32_t*>(non_finite_),
                    .count = elements_}));
  COHORT_RETURN_IF_ERROR(device_.Download(
      std::as_writable_bytes(std::span(&found, 1)), non_finite_));
  return found == 0;
}

absl::Status Network::Update(const trainer::AdamOptions& options, int64_t step,
                             float gradient_scale) {
  return device_.Launch(
      options_.precision,
      AdamArgs{.gradients = gradients_,
               .parameters = reinterpret_cast<float*>(masters_),
               .exp_avg = reinterpret_cast<float*>(exp_avg_),
               .exp_avg_sq = reinterpret_cast<float*>(exp_avg_sq_),
               .rounded = weights_ == masters_ ? nullptr : weights_,
               .count = elements_,
               .gradient_scale = gradient_scale,
               .factors = trainer::AdamFactors<float>(options, step)});
}

absl::StatusOr<double> Network::Loss() {
  std::vector<float> losses(size_t{2} * rows_);
  COHORT_RETURN_IF_ERROR(
      device_.Download(std::as_writable_bytes(std::span(losses)), losses_));
  double sum = 0;
  for (size_t i = 0; i < rows_; ++i) {
    sum += std::log(static_cast<double>(losses[2 * i])) + losses[2 * i + 1];
  }
  return sum / rows_;
}

absl::StatusOr<int64_t> Network::CountCorrect(std::span<const float> inputs,
                                              std::span<const int64_t> labels) {
  const auto classes = static_cast<size_t>(options_.shape.classes);
  const auto width = static_cast<size_t>(options_.shape.inputs);
  const auto batch = static_cast<size_t>(options_.batch_max);
  std::vector<std::byte> logits(batch * classes * SizeOf(options_.precision));
  // Not where the next step's samples are on their way to.
  Samples samples = samples_[(next_ + 1) % samples_.size()];
  int64_t correct = 0;
  for (size_t begin = 0; begin < labels.size(); begin += batch) {
    const size_t rows = std::min(batch, labels.size() - begin);
    const auto part = inputs.subspan(begin * width, rows * width);
    CheckSamples(part, labels.subspan(begin, rows));
    COHORT_RETURN_IF_ERROR(device_.Upload(samples.inputs, std::as_bytes(part)));
    samples.rows = static_cast<uint32_t>(rows);
    COHORT_RETURN_IF_ERROR(Forward(samples));
    COHORT_RETURN_IF_ERROR(device_.Download(
        std::span(logits).first(rows * classes * SizeOf(options_.precision)),
        activations_.back()));
    for (size_t row = 0; row < rows; ++row) {
      size_t best = 0;
      const auto logit = [&](size_t i) {
        return ElementOf(options_.precision, logits.data(), row * classes + i);
      };
      for (size_t i = 1; i < classes; ++i) {
        if (logit(i) > logit(best)) best = i;
      }
      correct += best == static_cast<size_t>(labels[begin + row]) ? 1 : 0;
    }
  }
  return correct;
}

absl::StatusOr<std::vector<SavedTensor>> Network::Save() {
  std::vector<SavedTensor> tensors;
  for (const Parameter& parameter : parameters_) {
    tensors.push_back({.name = parameter.name, .shape = parameter.shape});
  }
  std::vector<float> values(elements_);
  const auto take = [&](const std::byte* from,
                        std::vector<float> SavedTensor::*to) -> absl::Status {
    COHORT_RETURN_IF_ERROR(
        device_.Download(std::as_writable_bytes(std::span(values)), from));
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const auto begin = values.begin() + parameters_[i].offset;
      (tensors[i].*to).assign(begin, begin + parameters_[i].size);
    }
    return absl::OkStatus();
  };
  COHORT_RETURN_IF_ERROR(take(masters_, &SavedTensor::parameter));
  COHORT_RETURN_IF_ERROR(take(exp_avg_, &SavedTensor::exp_avg));
  COHORT_RETURN_IF_ERROR(take(exp_avg_sq_, &SavedTensor::exp_avg_sq));
  return tensors;
}

absl::Status Network::Load(std::span<const SavedTensor> tensors) {
  if (tensors.size() != parameters_.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a network of ", tensors.size(), " tensors, not ", parameters_.size()));
  }
  std::vector<float> masters(elements_), exp_avg(elements_);
  std::vector<float> exp_avg_sq(elements_);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const SavedTensor& tensor = tensors[i];
    const Parameter& parameter = parameters_[i];
    if (tensor.name != parameter.name || tensor.shape != parameter.shape) {
      return absl::InvalidArgumentError(absl::StrCat(
          tensor.name, " is not of this network's ", parameter.name));
    }
    const auto put = [&parameter](const std::vector<float>& from,
                                  std::vector<float>& to) {
      COHORT_CHECK(from.size() == parameter.size);
      std::copy(from.begin(), from.end(), to.begin() + parameter.offset);
    };
    put(tensor.parameter, masters);
    put(tensor.exp_avg, exp_avg);
    put(tensor.exp_avg_sq, exp_avg_sq);
  }
  COHORT_RETURN_IF_ERROR(
      device_.Upload(exp_avg_, std::as_bytes(std::span(exp_avg))));
  COHORT_RETURN_IF_ERROR(
      device_.Upload(exp_avg_sq_, std::as_bytes(std::span(exp_avg_sq))));
  return StoreMasters(masters);
}

}  // namespace cohort::mlp
