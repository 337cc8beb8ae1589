#include "examples/gpt/model.h"

#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/nn/functional/loss.h"
#include "torch/utils.h"

#include "common/testing/status_matchers.h"
#include "examples/gpt/sample.h"

namespace cohort::gpt {
namespace {

constexpr GptShape kTiny = {.context = 8, .width = 16, .heads = 2, .layers = 2};

torch::Tensor SomeBytes(int64_t rows, int64_t length) {
  return torch::arange(rows * length, torch::kInt64)
      .mul(37)
      .remainder(kVocabulary)
      .reshape({rows, length});
}

// GP-1
TEST(GptTest, ALaterByteChangesNoEarlierLogit) {
  for (const torch::ScalarType compute : {torch::kFloat32, torch::kBFloat16}) {
    GptImpl model(kTiny, compute, /*seed=*/1);
    const torch::NoGradGuard no_gradients;
    const torch::Tensor bytes = SomeBytes(2, 8);
    const torch::Tensor before = model.forward(bytes);
    for (int64_t place = 0; place < 8; ++place) {
      torch::Tensor other = bytes.clone();
      other[0][place] = (bytes[0][place] + 1) % kVocabulary;
      const torch::Tensor after = model.forward(other);
      EXPECT_TRUE(torch::equal(after[0].slice(0, 0, place),
                               before[0].slice(0, 0, place)));
      EXPECT_FALSE(torch::equal(after[0][place], before[0][place]));
      EXPECT_FALSE(torch::equal(after[0][7], before[0][7]));
      EXPECT_TRUE(torch::equal(after[1], before[1]));
    }
  }
}

TEST(GptTest, PlacesCount) {
  GptImpl model(kTiny, torch::kFloat32, 1);
  const torch::Tensor logits =
      model.forward(torch::zeros({1, 4}, torch::kInt64));
  EXPECT_EQ(logits.sizes(), (std::vector<int64_t>{1, 4, kVocabulary}));
  EXPECT_FALSE(torch::allclose(logits[0][0], logits[0][1]));
}

// GP-2
TEST(GptTest, WeightsFollowFromTheSeed) {
  const auto weights = [](uint64_t seed) {
    GptImpl model(kTiny, torch::kFloat32, seed);
    std::vector<torch::Tensor> flat;
    for (const torch::Tensor& parameter : model.parameters()) {
      flat.push_back(parameter.detach().flatten());
    }
    return torch::cat(flat);
  };
  const torch::Tensor first = weights(1);
  torch::manual_seed(5);
  EXPECT_TRUE(torch::equal(first, weights(1)));
  EXPECT_FALSE(torch::equal(first, weights(2)));
  EXPECT_TRUE(torch::isfinite(first).all().item<bool>());
  // Embedding and positions; two blocks of four dense layers and two norms; the
  // last norm.
  EXPECT_EQ(first.numel(), 256 * 16 + 8 * 16 +
                               2 * (16 * 48 + 48 + 16 * 16 + 16 + 16 * 64 + 64 +
                                    64 * 16 + 16 + 4 * 16) +
                               2 * 16);
}

TEST(GptTest, KeepsWeightsAndGradientsInFloat32) {
  GptImpl model(kTiny, torch::kBFloat16, 1);
  const torch::Tensor bytes = SomeBytes(2, 8);
  const torch::Tensor logits = model.forward(bytes);
  EXPECT_EQ(logits.scalar_type(), torch::kFloat32);
  GptImpl exact(kTiny, torch::kFloat32, 1);
  EXPECT_TRUE(torch::allclose(logits, exact.forward(bytes), 0.1, 0.02));
  EXPECT_FALSE(torch::equal(logits, exact.forward(bytes)));
  logits.sum().backward();
  for (const auto& entry : model.named_parameters()) {
    ASSERT_TRUE(entry.value().grad().defined()) << entry.key();
    EXPECT_EQ(entry.value().grad().scalar_type(), torch::kFloat32);
  }
}

TEST(SampleTest, FollowsFromWeightsAndSeed) {
  GptImpl model(kTiny, torch::kFloat32, 1);
  // Longer than the context.
  const std::string prompt = "a long prompt";
  const auto text = Sample(model, torch::kCPU, prompt, 40, /*seed=*/3);
  COHORT_ASSERT_OK(text);
  EXPECT_EQ(text->size(), 40u);
  EXPECT_EQ(*text, *Sample(model, torch::kCPU, prompt, 40, 3));
  EXPECT_NE(*text, *Sample(model, torch::kCPU, prompt, 40, 4));
}

}  // namespace
}  // namespace cohort::gpt
