#pragma once

#include <cstdint>
#include <vector>

#include "torch/nn/module.h"
#include "torch/nn/modules/linear.h"
#include "torch/nn/modules/normalization.h"
#include "torch/types.h"

#include "examples/gpt/options.h"

namespace cohort::gpt {

inline constexpr int64_t kVocabulary = 256;  // bytes

// One block: attention and a dense layer of four times the width, each behind a
// norm and added to what came in.
class BlockImpl : public torch::nn::Module {
 public:
  BlockImpl(const GptShape& shape, torch::ScalarType compute);

  // x: [n,t,width]; mask: [t,t], -inf where nothing may be seen.
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask);

 private:
  torch::Tensor Attend(const torch::Tensor& x, const torch::Tensor& mask);

  const int64_t heads_;
  const torch::ScalarType compute_;
  torch::nn::LayerNorm norm1_, norm2_;
  torch::nn::Linear qkv_, projection_, up_, down_;
};
TORCH_MODULE(Block);

// A decoder of bytes as GPT-2 is one (A. Radford et al., "Language Models are
// Unsupervised Multitask Learners", 2019): norms first, learned positions, the
// output shares its weights with the embedding.
//
// Parameters, sums along the residual stream, norms and softmax are float32;
// with `compute` bfloat16 matrix products are done in it, as PyTorch's autocast
// does.
//
//   GP-1: the logits at a place depend on the bytes up to it and no others.
//   GP-2: the weights follow from shape and seed alone.
class GptImpl : public torch::nn::Module {
 public:
  GptImpl(const GptShape& shape, torch::ScalarType compute, uint64_t seed);

  // Bytes [n,t] as int64, t at most the context, to logits [n,t,256], float32.
  torch::Tensor forward(const torch::Tensor& bytes);

  const GptShape& shape() const { return shape_; }

 private:
  void DrawWeights(uint64_t seed);

  const GptShape shape_;
  const torch::ScalarType compute_;
  torch::Tensor embedding_;  // [256,width]
  torch::Tensor positions_;  // [context,width]
  std::vector<Block> blocks_;
  torch::nn::LayerNorm norm_{nullptr};
};

}  // namespace cohort::gpt
