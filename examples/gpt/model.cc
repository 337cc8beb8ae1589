#include "examples/gpt/model.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "torch/nn/functional/embedding.h"
#include "torch/nn/options/normalization.h"
#include "torch/utils.h"

namespace cohort::gpt {
namespace {

// GPT-2's.
constexpr double kWeightDeviation = 0.02;

torch::nn::LayerNorm NormOver(int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
}

// A dense layer whose products are done in `type`.
torch::Tensor Dense(const torch::nn::Linear& layer, const torch::Tensor& x,
                    torch::ScalarType type) {
  return torch::linear(x.to(type), layer->weight.to(type),
                       layer->bias.to(type));
}

}  // namespace

BlockImpl::BlockImpl(const GptShape& shape, torch::ScalarType compute)
    : heads_(shape.heads),
      compute_(compute),
      norm1_(register_module("norm1", NormOver(shape.width))),
      norm2_(register_module("norm2", NormOver(shape.width))),
      qkv_(register_module("qkv",
                           torch::nn::Linear(shape.width, 3 * shape.width))),
      projection_(register_module("projection",
                                  torch::nn::Linear(shape.width, shape.width))),
      up_(register_module("up",
                          torch::nn::Linear(shape.width, 4 * shape.width))),
      down_(register_module("down",
                            torch::nn::Linear(4 * shape.width, shape.width))) {}

torch::Tensor BlockImpl::forward(const torch::Tensor& x,
                                 const torch::Tensor& mask) {
  const torch::Tensor seen = x + Attend(norm1_->forward(x), mask);
  const torch::Tensor wide =
      torch::gelu(Dense(up_, norm2_->forward(seen), compute_));
  return seen + Dense(down_, wide, compute_).to(torch::kFloat32);
}

torch::Tensor BlockImpl::Attend(const torch::Tensor& x,
                                const torch::Tensor& mask) {
  const int64_t n = x.size(0), t = x.size(1), width = x.size(2);
  // [3,n,heads,t,width/heads]
  const torch::Tensor parts = Dense(qkv_, x, compute_)
                                  .view({n, t, 3, heads_, width / heads_})
                                  .permute({2, 0, 3, 1, 4});
  const double scale =
      1 / std::sqrt(static_cast<double>(width) / static_cast<double>(heads_));
  const torch::Tensor scores =
      torch::matmul(parts[0], parts[1].transpose(-2, -1)).to(torch::kFloat32);
  const torch::Tensor weights = torch::softmax(scores * scale + mask, -1);
  const torch::Tensor heard = torch::matmul(weights.to(compute_), parts[2])
                                  .transpose(1, 2)
                                  .reshape({n, t, width});
  return Dense(projection_, heard, compute_).to(torch::kFloat32);
}

GptImpl::GptImpl(const GptShape& shape, torch::ScalarType compute,
                 uint64_t seed)
    : shape_(shape), compute_(compute) {
  embedding_ =
      register_parameter("embedding", torch::empty({kVocabulary, shape.width}));
  positions_ = register_parameter("positions",
                                  torch::empty({shape.context, shape.width}));
  for (int64_t i = 0; i < shape.layers; ++i) {
    blocks_.push_back(
        register_module(absl::StrCat("block", i), Block(shape, compute)));
  }
  norm_ = register_module("norm", NormOver(shape.width));
  DrawWeights(seed);
}

void GptImpl::DrawWeights(uint64_t seed) {
  const torch::NoGradGuard no_gradients;
  // Its own, since the ranks of a test are threads.
  const at::Generator generator =
      at::make_generator<at::CPUGeneratorImpl>(seed);
  // So that the residual stream does not grow with depth.
  const double into_residual =
      kWeightDeviation / std::sqrt(2.0 * static_cast<double>(shape_.layers));
  for (const auto& entry : named_parameters()) {
    torch::Tensor parameter = entry.value();
    const std::string& name = entry.key();
    if (absl::StrContains(name, "norm")) continue;  // ones and zeros
    if (absl::EndsWith(name, "bias")) {
      parameter.zero_();
      continue;
    }
    const bool is_last = absl::EndsWith(name, "projection.weight") ||
                         absl::EndsWith(name, "down.weight");
    parameter.normal_(0, is_last ? into_residual : kWeightDeviation, generator);
  }
}

torch::Tensor GptImpl::forward(const torch::Tensor& bytes) {
  const int64_t t = bytes.size(1);
  const torch::Tensor mask =
      torch::full({t, t}, -std::numeric_limits<float>::infinity(),
                  embedding_.options().requires_grad(false))
          .triu(/*diagonal=*/1);
  torch::Tensor x = torch::nn::functional::embedding(bytes, embedding_) +
                    positions_.slice(/*dim=*/0, 0, t);
  for (Block& block : blocks_) x = block->forward(x, mask);
  return torch::linear(norm_->forward(x).to(compute_), embedding_.to(compute_))
      .to(torch::kFloat32);
}

}  // namespace cohort::gpt
