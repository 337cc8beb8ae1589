// Trains a small network with a part that PyTorch's DistributedDataParallel
// has, as test_ddp_parts.py compares it with that (ddp_parts.py):
//
//   ddp-parts PART      in a rank of `cohort submit`
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "torch/torch.h"

#include "common/status_macros.h"
#include "trainer/torch/prepare.h"
#include "trainer/train/schedule.h"
#include "trainer/train/trainer.h"

namespace ddp_parts {

constexpr int64_t kInputs = 6;
constexpr int64_t kSteps = 100;
constexpr int64_t kBatch = 4;

struct Config {
  std::string part;
  COHORT_FIELDS(part)
};

// Sample i of kSteps * kBatch * ranks: numbers that both languages compute.
class Waves final : public cohort::trainer::Dataset {
 public:
  explicit Waves(int ranks) : size_(kSteps * kBatch * ranks) {}
  int64_t size() const override { return size_; }
  int64_t input_size() const override { return kInputs; }
  absl::Status Read(std::span<const int64_t> ids, std::span<float> inputs,
                    std::span<int64_t> labels) const override {
    for (size_t i = 0; i < ids.size(); ++i) {
      for (int64_t k = 0; k < kInputs; ++k) {
        inputs[i * kInputs + k] =
            static_cast<float>((ids[i] * 37 + k * 11) % 19) / 8 - 1;
      }
      labels[i] = (ids[i] * 7 + ids[i] / 3) % 3;
    }
    return absl::OkStatus();
  }

 private:
  const int64_t size_;
};

struct NetImpl : torch::nn::Module {
  explicit NetImpl(std::string the_part) : part(std::move(the_part)) {
    register_module("first", first);
    if (part == "batch_norm") register_module("norm", norm);
    register_module("second", second);
    if (part.starts_with("unused")) register_module("extra", extra);
    if (part == "frozen") first->weight.set_requires_grad(false);
  }
  torch::Tensor forward(const torch::Tensor& x, int64_t step) {
    auto hidden = first(x);
    if (part == "batch_norm") hidden = norm(hidden);
    hidden = torch::relu(hidden);
    // Every third step.
    if (part.starts_with("unused") && step % 3 == 0)
      hidden = hidden + extra(hidden);
    if (part == "bfloat16") {
      return torch::linear(hidden.to(torch::kBFloat16),
                           second->weight.to(torch::kBFloat16),
                           second->bias.to(torch::kBFloat16))
          .to(torch::kFloat32);
    }
    return second(hidden);
  }
  std::string part;
  torch::nn::Linear first{kInputs, 16}, second{16, 3}, extra{16, 16};
  torch::nn::BatchNorm1d norm{16};
};
TORCH_MODULE(Net);

cohort::train::Optimizer Optimizer(cohort::train::Run& run, Net& net) {
  namespace optim = torch::optim;
  const std::string& part = net->part;
  if (part == "adam" || part == "unused_adam")
    return run.Prepare(optim::Adam(net->parameters(), 0.01));
  if (part == "adamw") {
    return run.Prepare(optim::AdamW(
        net->parameters(), optim::AdamWOptions(0.01).weight_decay(0.1)));
  }
  if (part == "groups") {
    std::vector<optim::OptimizerParamGroup> groups;
    groups.emplace_back(net->first->parameters());
    groups.emplace_back(net->second->parameters(),
                        std::make_unique<optim::SGDOptions>(0.2));
    return run.Prepare(optim::SGD(groups, optim::SGDOptions(0.02)));
  }
  std::vector<torch::Tensor> trained;
  for (const auto& parameter : net->parameters()) {
    if (parameter.requires_grad()) trained.push_back(parameter);
  }
  return run.Prepare(
      optim::SGD(trained, optim::SGDOptions(0.05).momentum(0.9)));
}

absl::Status Train(cohort::train::Run& run, const Config& config) {
  torch::manual_seed(1);
  Net net(config.part);
  auto model = run.Prepare(net);
  auto optimizer = Optimizer(run, net);
  const auto data = std::make_shared<Waves>(run.world());
  auto* const loader =
      run.Loader(data, {.batch_size = kBatch, .shuffle = false});
  const auto loss_of = [&](const cohort::trainer::Batch& batch) {
    return torch::nn::functional::cross_entropy(
        model(cohort::train::Inputs(batch, {kInputs}), run.step()),
        cohort::train::Labels(batch));
  };
  for (auto epoch : run.Epochs(1)) {
    for (const auto& batch : epoch.Batches(loader)) {
      using cohort::torch_adapter::Sync;
      const bool accumulates = config.part == "no_sync";
      const bool is_later = accumulates && run.step() % 2 == 0;
      if (!accumulates || is_later) optimizer.zero_grad();
      if (config.part == "cosine") {
        optimizer.SetLearningRate(cohort::train::CosineRate(
            {.peak = 0.1, .warm_up = 10, .steps = kSteps}, run.step()));
      }
      const auto loss = loss_of(batch);
      COHORT_RETURN_IF_ERROR(
          run.Backward(loss, is_later ? Sync::kLater : Sync::kNow));
      if (config.part == "clip") {
        torch::nn::utils::clip_grad_norm_(net->parameters(), 0.1);
      }
      if (!is_later) optimizer.step();
      run.Report({{"loss", loss}});
    }
  }
  net->eval();
  return run
      .Evaluate("evaluation", *data,
                [&](const auto& batch) {
                  const torch::NoGradGuard no_gradients;
                  return loss_of(batch) * batch.size();
                })
      .status();
}

}  // namespace ddp_parts

int main(int argc, char** argv) {
  cohort::train::ServeRanks();
  cohort::train::Trainer<&ddp_parts::Train> trainer(
      {.part = argc > 1 ? argv[1] : ""});
  const absl::Status done = cohort::train::ErrorOf(trainer.Fit());
  if (!done.ok()) std::cerr << "ddp-parts: " << done.message() << std::endl;
  return done.ok() ? 0 : 1;
}
