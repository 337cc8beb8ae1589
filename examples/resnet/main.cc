// Trains a small residual network on Fashion-MNIST (or MNIST), data-parallel,
// with batch norm over all ranks, augmented images and a cosine schedule.
//
//   resnet --num-workers 2      as a job, by Fit(); 0: in this process
#include <algorithm>
#include <iostream>
#include <memory>
#include <random>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "torch/torch.h"

#include "common/status_macros.h"
#include "trainer/idx_dataset.h"
#include "trainer/torch/prepare.h"
#include "trainer/torch/sync_batch_norm.h"
#include "trainer/train/schedule.h"
#include "trainer/train/trainer.h"

namespace resnet {
using cohort::train::Inputs;
using cohort::train::Labels;
using cohort::train::Run;
using cohort::train::SyncBatchNorm;
using cohort::trainer::Batch;
using cohort::trainer::IdxDataset;
using torch::nn::Conv2d;
constexpr int64_t kSide = 28;
constexpr int kShift = 2;  // pixels at most

struct Config {
  std::string data = "/usr/share/datasets/fashion-mnist";
  int64_t epochs = 5, batch = 64, width = 16, blocks = 1;
  int64_t train_samples = 0, test_samples = 0;
  double lr = 0.1;
  uint64_t seed = 1;
  COHORT_FIELDS(data, epochs, batch, width, blocks, train_samples, test_samples,
                lr, seed)
};

Conv2d Convolution(int64_t from, int64_t to, int64_t size, int64_t stride) {
  return Conv2d(torch::nn::Conv2dOptions(from, to, size)
                    .stride(stride)
                    .padding(size / 2)
                    .bias(false));
}

// Two convolutions, added to what came in (K. He et al., "Deep Residual
// Learning for Image Recognition", 2015).
struct BlockImpl : torch::nn::Module {
  BlockImpl(Run& run, int64_t from, int64_t to, int64_t stride)
      : conv1(register_module("conv1", Convolution(from, to, 3, stride))),
        conv2(register_module("conv2", Convolution(to, to, 3, 1))),
        norm1(register_module("norm1", SyncBatchNorm(run.comm(), to))),
        norm2(register_module("norm2", SyncBatchNorm(run.comm(), to))) {
    if (from == to && stride == 1) return;
    shortcut = register_module("shortcut", Convolution(from, to, 1, stride));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto inner = norm2(conv2(torch::relu(norm1(conv1(x)))));
    return torch::relu(inner + (shortcut.is_empty() ? x : shortcut(x)));
  }
  Conv2d conv1, conv2;
  SyncBatchNorm norm1, norm2;
  Conv2d shortcut{nullptr};
};
TORCH_MODULE(Block);

struct NetImpl : torch::nn::Module {
  NetImpl(Run& run, const Config& config)
      : stem(register_module("stem", Convolution(1, config.width, 3, 1))),
        norm(register_module("norm", SyncBatchNorm(run.comm(), config.width))),
        dense(
            register_module("dense", torch::nn::Linear(4 * config.width, 10))) {
    int64_t from = config.width;
    for (const int64_t scale : {1, 2, 4}) {
      for (int64_t i = 0; i < config.blocks; ++i) {
        const int64_t to = config.width * scale;
        const int64_t stride = scale > 1 && i == 0 ? 2 : 1;
        blocks.push_back(register_module(absl::StrCat("block", blocks.size()),
                                         Block(run, from, to, stride)));
        from = to;
      }
    }
  }
  torch::Tensor forward(const torch::Tensor& images) {
    auto x = torch::relu(norm(stem(images)));
    for (auto& block : blocks) x = block(x);
    return dense(x.mean({2, 3}));
  }
  Conv2d stem;
  SyncBatchNorm norm;
  std::vector<Block> blocks;
  torch::nn::Linear dense;
};
TORCH_MODULE(Net);

// Shifts each image by a few pixels and mirrors it or not, by its id and the
// epoch: the same on whatever rank it is, and after a restart.
void Augment(const Batch& batch, int64_t epoch, uint64_t seed) {
  std::vector<float> image(kSide * kSide);
  for (size_t n = 0; n < batch.ids.size(); ++n) {
    std::seed_seq of{seed, static_cast<uint64_t>(epoch),
                     static_cast<uint64_t>(batch.ids[n])};
    std::minstd_rand random(of);
    const auto shift = [&] {
      return static_cast<int64_t>(random() % (2 * kShift + 1)) - kShift;
    };
    const int64_t down = shift(), right = shift();
    const bool mirrored = random() % 2 == 0;
    const auto out = batch.inputs.subspan(n * image.size(), image.size());
    std::ranges::copy(out, image.begin());
    const auto is_inside = [](int64_t at) { return at >= 0 && at < kSide; };
    for (int64_t i = 0; i < kSide * kSide; ++i) {
      const int64_t x = mirrored ? kSide - 1 - i % kSide : i % kSide;
      const int64_t of_y = i / kSide - down, of_x = x - right;
      const bool is_there = is_inside(of_y) && is_inside(of_x);
      out[i] = is_there ? image[of_y * kSide + of_x] : 0;
    }
  }
}

absl::Status Train(Run& run, const Config& config) {
  COHORT_ASSIGN_OR_RETURN(
      const std::shared_ptr<const IdxDataset> images,
      IdxDataset::Open(config.data, "train", config.train_samples));
  COHORT_ASSIGN_OR_RETURN(
      const auto test,
      IdxDataset::Open(config.data, "t10k", config.test_samples));
  torch::manual_seed(config.seed);
  Net net(run, config);
  auto model = run.Prepare(net);
  auto optimizer = run.Prepare(torch::optim::SGD(
      net->parameters(),
      torch::optim::SGDOptions(config.lr).momentum(0.9).weight_decay(5e-4)));
  auto* const loader =
      run.Loader(images, {.batch_size = config.batch, .seed = config.seed});
  const int64_t together = config.batch * run.world();
  const int64_t per_epoch = (images->size() + together - 1) / together;
  const cohort::train::CosineSchedule schedule{
      .peak = config.lr,
      .warm_up = per_epoch / 2,
      .steps = per_epoch * config.epochs};
  for (auto epoch : run.Epochs(config.epochs)) {
    net->train();
    for (const auto& batch : epoch.Batches(loader)) {
      Augment(batch, epoch.number(), config.seed);
      optimizer.SetLearningRate(CosineRate(schedule, run.step()));
      optimizer.zero_grad();
      const auto loss = torch::nn::functional::cross_entropy(
          model(Inputs(batch, {1, kSide, kSide})), Labels(batch));
      COHORT_RETURN_IF_ERROR(run.Backward(loss));
      optimizer.step();
      run.Report({{"loss", loss}});
    }
    net->eval();
    const auto right = [&](const Batch& batch) {
      const torch::NoGradGuard no_gradients;
      const auto classes = model(Inputs(batch, {1, kSide, kSide})).argmax(1);
      return (classes == Labels(batch)).sum() * 100.0;
    };
    COHORT_ASSIGN_OR_RETURN(const double accuracy,
                            run.Evaluate("accuracy", *test, right));
    run.Log(absl::StrFormat("epoch %d  loss %.4f  accuracy %.2f %%",
                            epoch.number() + 1, run.EpochMean("loss"),
                            accuracy));
  }
  return run.status();
}

}  // namespace resnet

int main(int argc, char** argv) {
  cohort::train::ServeRanks();
  resnet::Config config;
  cohort::ScalingConfig scaling{.num_workers = 0};
  cohort::RunConfig run{.name = "resnet"};
  CLI::App app("Trains a small residual network on Fashion-MNIST.", "resnet");
  app.add_option("--num-workers", scaling.num_workers,
                 "Ranks of the job; 0: in this process");
  app.add_flag("--use-gpu", scaling.use_gpu, "A GPU for each rank");
  app.add_option("--data", config.data, "The idx files' directory");
  app.add_option("--epochs", config.epochs)->check(CLI::PositiveNumber);
  app.add_option("--batch", config.batch)->check(CLI::PositiveNumber);
  app.add_option("--width", config.width)->check(CLI::PositiveNumber);
  app.add_option("--blocks", config.blocks)->check(CLI::PositiveNumber);
  app.add_option("--lr", config.lr, "SGD's learning rate at its peak");
  app.add_option("--seed", config.seed);
  app.add_option("--train-samples", config.train_samples, "0: all");
  app.add_option("--test-samples", config.test_samples, "0: all");
  CLI11_PARSE(app, argc, argv);
  config.data = cohort::train::AbsolutePath(config.data);
  cohort::train::Trainer<&resnet::Train> trainer(config, scaling, run);
  const absl::Status done = cohort::train::ErrorOf(trainer.Fit());
  if (!done.ok()) std::cerr << "resnet: " << done.message() << std::endl;
  return done.ok() ? 0 : 1;
}
