// Trains a small GPT on the bytes of a text, data-parallel, and lets it write.
//
//   gpt                      in this process
//   gpt --num-workers 2      as a job, by Fit()
#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <iostream>
#include <memory>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "torch/torch.h"

#include "common/status_macros.h"
#include "trainer/token_dataset.h"
#include "trainer/torch/prepare.h"
#include "trainer/train/trainer.h"

namespace gpt {
using cohort::trainer::TokenDataset;
using torch::nn::LayerNorm;
using torch::nn::Linear;
constexpr int64_t kVocabulary = 256;  // bytes
constexpr double kTemperature = 0.8;

struct Config {
  std::string data = "data/text/moby-dick.txt.gz", loss_log;
  std::string dtype = "f32", prompt = "Call me Ishmael. ";
  int64_t context = 128, width = 128, heads = 4, layers = 4;
  int64_t epochs = 1, batch = 16, steps = 0, checkpoint_every = 0, sample = 200;
  double lr = 1e-3;
  uint64_t seed = 1;
  COHORT_FIELDS(data, loss_log, dtype, prompt, context, width, heads, layers,
                epochs, batch, steps, checkpoint_every, sample, lr, seed)
  // Of matrix products; all else is float32, as in PyTorch's autocast.
  torch::ScalarType type() const {
    return dtype == "bf16" ? torch::kBFloat16 : torch::kFloat32;
  }
};

torch::Tensor Dense(const Linear& layer, const torch::Tensor& x,
                    torch::ScalarType type) {
  return torch::linear(x.to(type), layer->weight.to(type),
                       layer->bias.to(type));
}

// Attention and a dense layer of four times the width, each behind a norm and
// added to what came in.
struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(const Config& config)
      : heads(config.heads),
        type(config.type()),
        norm1(register_module("norm1", NormOver(config.width))),
        norm2(register_module("norm2", NormOver(config.width))),
        qkv(register_module("qkv", Linear(config.width, 3 * config.width))),
        projection(
            register_module("projection", Linear(config.width, config.width))),
        up(register_module("up", Linear(config.width, 4 * config.width))),
        down(register_module("down", Linear(4 * config.width, config.width))) {}

  static LayerNorm NormOver(int64_t width) {
    return LayerNorm(torch::nn::LayerNormOptions({width}));
  }
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask) {
    const auto seen = x + Attend(norm1(x), mask);
    const auto wide = torch::gelu(Dense(up, norm2(seen), type));
    return seen + Dense(down, wide, type).to(torch::kFloat32);
  }
  torch::Tensor Attend(const torch::Tensor& x, const torch::Tensor& mask) {
    const int64_t n = x.size(0), t = x.size(1), width = x.size(2);
    const auto parts = Dense(qkv, x, type)
                           .view({n, t, 3, heads, width / heads})
                           .permute({2, 0, 3, 1, 4});
    const auto scores = torch::matmul(parts[0], parts[1].transpose(-2, -1)) /
                        std::sqrt(static_cast<double>(width / heads));
    const auto weights = torch::softmax(scores.to(torch::kFloat32) + mask, -1);
    const auto heard =
        torch::matmul(weights.to(type), parts[2]).transpose(1, 2);
    return Dense(projection, heard.reshape({n, t, width}), type)
        .to(torch::kFloat32);
  }

  const int64_t heads;
  const torch::ScalarType type;
  LayerNorm norm1, norm2;
  Linear qkv, projection, up, down;
};
TORCH_MODULE(Block);

// A decoder of bytes as GPT-2 is one (A. Radford et al., "Language Models are
// Unsupervised Multitask Learners", 2019): norms first, learned positions, the
// output shares its weights with the embedding.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(const Config& config) : type(config.type()) {
    embedding = register_parameter("embedding",
                                   torch::empty({kVocabulary, config.width}));
    positions = register_parameter(
        "positions", torch::empty({config.context, config.width}));
    for (int64_t i = 0; i < config.layers; ++i) {
      blocks.push_back(
          register_module(absl::StrCat("block", i), Block(config)));
    }
    norm = register_module("norm", BlockImpl::NormOver(config.width));
    // GPT-2's weights: what is added to the blocks' sum begins smaller, so that
    // it does not grow with depth.
    const double deep = std::sqrt(2.0 * static_cast<double>(config.layers));
    for (const auto& parameter : named_parameters()) {
      const std::string& name = parameter.key();
      if (name.find("norm") != std::string::npos) continue;  // ones and zeros
      const bool is_last =
          name.ends_with("projection.weight") || name.ends_with("down.weight");
      const double spread =
          name.ends_with("bias") ? 0 : 0.02 / (is_last ? deep : 1);
      torch::nn::init::normal_(parameter.value(), 0, spread);
    }
  }
  // Bytes [n,t] to how likely each is next, [n,t,256], as logits.
  torch::Tensor forward(const torch::Tensor& bytes) {
    const int64_t t = bytes.size(1);
    const auto mask =
        torch::full({t, t}, -INFINITY, embedding.options()).triu(1);
    auto x = torch::nn::functional::embedding(bytes, embedding) +
             positions.slice(0, 0, t);
    for (auto& block : blocks) x = block(x, mask);
    return torch::linear(norm(x).to(type), embedding.to(type))
        .to(torch::kFloat32);
  }

  const torch::ScalarType type;
  torch::Tensor embedding, positions;
  std::vector<Block> blocks;
  LayerNorm norm{nullptr};
};
TORCH_MODULE(Net);

// What the model writes behind the prompt, a byte at a time.
std::string Sample(Net& net, const Config& config) {
  const torch::NoGradGuard no_gradients;
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(config.seed);
  std::string text = config.prompt;
  for (int64_t i = 0; i < config.sample; ++i) {
    const auto seen = std::min<int64_t>(text.size(), config.context);
    const std::vector<uint8_t> bytes(text.end() - seen, text.end());
    const auto row = torch::tensor(bytes).to(torch::kInt64).unsqueeze(0);
    const auto logits = net(row.to(cohort::train::Device()))[0][-1];
    const auto likely = torch::softmax(logits / kTemperature, 0).cpu();
    text += static_cast<char>(
        torch::multinomial(likely, 1, false, generator).item<int64_t>());
  }
  return absl::CHexEscape(text);
}

absl::Status Train(cohort::train::Run& run, const Config& config) {
  const auto open = [&](double from, double to) {
    return TokenDataset::Open(
        config.data, {.context = config.context, .from = from, .to = to});
  };
  COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<const TokenDataset> text,
                          open(0, 0.9));
  COHORT_ASSIGN_OR_RETURN(const auto rest, open(0.9, 1));
  torch::manual_seed(config.seed);
  Net net(config);
  auto model = run.Prepare(net);
  auto optimizer =
      run.Prepare(torch::optim::Adam(net->parameters(), config.lr));
  const auto loss_of = [&](const cohort::trainer::Batch& batch) {
    const auto rows =
        cohort::train::Inputs(batch, {config.context + 1}).to(torch::kInt64);
    return torch::nn::functional::cross_entropy(
        model(rows.slice(1, 0, config.context)).reshape({-1, kVocabulary}),
        rows.slice(1, 1).reshape({-1}));
  };
  auto* const loader =
      run.Loader(text, {.batch_size = config.batch, .seed = config.seed});
  run.CheckpointEvery({.steps = config.checkpoint_every});
  run.StopAfter(config.steps);
  for (auto epoch : run.Epochs(config.epochs)) {
    for (const auto& batch : epoch.Batches(loader)) {
      optimizer.zero_grad();
      const auto loss = loss_of(batch);
      COHORT_RETURN_IF_ERROR(run.Backward(loss));
      optimizer.step();
      run.Report({{"loss", loss}});
    }
  }
  const auto sum = [&](const cohort::trainer::Batch& batch) {
    const torch::NoGradGuard no_gradients;
    return loss_of(batch) * batch.size();
  };
  COHORT_ASSIGN_OR_RETURN(
      const double loss,
      run.Evaluate("validation_loss", *rest, sum, config.batch));
  if (config.sample > 0 && run.is_lead()) {
    run.Log(absl::StrCat("sample: ", Sample(net, config)));
  }
  run.WriteColumn("loss", config.loss_log);
  run.Log(absl::StrFormat("validation loss: %.4f (%.3f bits a byte)", loss,
                          loss / std::log(2.0)));
  return run.status();
}

}  // namespace gpt

int main(int argc, char** argv) {
  cohort::train::ServeRanks();
  gpt::Config config;
  cohort::ScalingConfig scaling{.num_workers = 0};
  cohort::RunConfig run{.name = "gpt"};
  std::string restore;
  CLI::App app("Trains a small GPT on the bytes of a text.", "gpt");
  app.add_option("--num-workers", scaling.num_workers,
                 "Ranks of the job; 0: in this process");
  app.add_flag("--use-gpu", scaling.use_gpu, "A GPU for each rank");
  app.add_option("--data", config.data, "The text, plain or gzip");
  app.add_option("--dtype", config.dtype, "Of matrix products")
      ->check(CLI::IsMember({"f32", "bf16"}));
  app.add_option("--context", config.context)->check(CLI::PositiveNumber);
  app.add_option("--width", config.width)->check(CLI::PositiveNumber);
  app.add_option("--heads", config.heads)->check(CLI::PositiveNumber);
  app.add_option("--layers", config.layers)->check(CLI::PositiveNumber);
  app.add_option("--epochs", config.epochs)->check(CLI::PositiveNumber);
  app.add_option("--batch", config.batch)->check(CLI::PositiveNumber);
  app.add_option("--steps", config.steps)->check(CLI::NonNegativeNumber);
  app.add_option("--checkpoint-every", config.checkpoint_every, "Steps")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--lr", config.lr, "Adam's learning rate");
  app.add_option("--seed", config.seed, "Of weights, shuffles and the sample");
  app.add_option("--sample", config.sample, "Bytes to write at the end")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--prompt", config.prompt, "What the sample goes on from");
  app.add_option("--loss-log", config.loss_log, "Write each step's loss");
  app.add_option("--storage-path", run.storage_path, "Of checkpoints");
  app.add_option("--restore", restore, "A checkpoint to go on from");
  CLI11_PARSE(app, argc, argv);
  if (config.width % config.heads != 0 || config.prompt.empty()) {
    std::cerr << "gpt: --heads divides --width, and --prompt has a byte\n";
    return 2;
  }
  config.data = cohort::train::AbsolutePath(config.data);
  config.loss_log = cohort::train::AbsolutePath(config.loss_log);
  cohort::train::Trainer<&gpt::Train> trainer(config, scaling, run);
  trainer.ResumeFrom(restore);
  const absl::Status done = cohort::train::ErrorOf(trainer.Fit());
  if (!done.ok()) std::cerr << "gpt: " << done.message() << std::endl;
  return done.ok() ? 0 : 1;
}
