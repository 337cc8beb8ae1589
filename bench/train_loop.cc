// The training loop that `train_step` times: a rank of a job, or with --bare
// the same loop in plain LibTorch, without cohort.
//
//   train-loop mlp|cnn STEPS OUT [--bare] [--report]
//
// STEPS 0: until it is stopped.  OUT-<rank> gets a line a step: when it began
// (CLOCK_MONOTONIC) and how long it took, in microseconds.  --report: metrics
// on every step.

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "torch/nn/functional/activation.h"
#include "torch/nn/functional/loss.h"
#include "torch/nn/module.h"
#include "torch/nn/modules/conv.h"
#include "torch/nn/modules/linear.h"
#include "torch/optim/sgd.h"
#include "torch/utils.h"

#include "common/real_clock.h"
#include "common/status_macros.h"
#include "trainer/torch/distributed_data_parallel.h"
#include "trainer/torch/process.h"
#include "trainer/torch/torch_status.h"
#include "trainer/worker_session.h"

namespace cohort::bench {
namespace {

constexpr int kBatch = 64;
constexpr int kBatches = 16;  // rotated, so that no step finds its input hot
constexpr double kRate = 0.01;

// 784-512-512-10.
class Mlp : public torch::nn::Module {
 public:
  Mlp()
      : fc1_(register_module("fc1", torch::nn::Linear(784, 512))),
        fc2_(register_module("fc2", torch::nn::Linear(512, 512))),
        fc3_(register_module("fc3", torch::nn::Linear(512, 10))) {}

  torch::Tensor forward(const torch::Tensor& images) {
    const torch::Tensor first =
        torch::relu(fc1_->forward(images.flatten(/*start_dim=*/1)));
    return fc3_->forward(torch::relu(fc2_->forward(first)));
  }

 private:
  torch::nn::Linear fc1_;
  torch::nn::Linear fc2_;
  torch::nn::Linear fc3_;
};

// That of examples/mnist, with PyTorch's weights.
class Cnn : public torch::nn::Module {
 public:
  Cnn()
      : conv_(register_module(
            "conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 32, 3)))),
        fc1_(register_module("fc1", torch::nn::Linear(32 * 26 * 26, 128))),
        fc2_(register_module("fc2", torch::nn::Linear(128, 10))) {}

  torch::Tensor forward(const torch::Tensor& images) {
    const torch::Tensor features =
        torch::relu(conv_->forward(images)).flatten(/*start_dim=*/1);
    return fc2_->forward(torch::relu(fc1_->forward(features)));
  }

 private:
  torch::nn::Conv2d conv_;
  torch::nn::Linear fc1_;
  torch::nn::Linear fc2_;
};

struct Options {
  std::string model;
  int64_t steps = 0;
  std::string out;
  bool bare = false;
  bool report = false;
};

// A rank's samples, made up: no two ranks have the same.
struct Samples {
  explicit Samples(int rank) {
    torch::manual_seed(100 + rank);
    for (int i = 0; i < kBatches; ++i) {
      images.push_back(torch::rand({kBatch, 1, 28, 28}));
      labels.push_back(torch::randint(10, {kBatch}, torch::kInt64));
    }
  }
  std::vector<torch::Tensor> images;
  std::vector<torch::Tensor> labels;
};

class StepLog {
 public:
  explicit StepLog(const std::string& path)
      : file_(std::fopen(path.c_str(), "w"), std::fclose) {}

  bool is_open() const { return file_ != nullptr; }
  void Add(absl::Duration start, absl::Duration took) {
    absl::FPrintF(file_.get(), "%d %.1f\n", absl::ToInt64Microseconds(start),
                  absl::ToDoubleMicroseconds(took));
  }

 private:
  const std::unique_ptr<FILE, int (*)(FILE*)> file_;
};

// Calls `step(images, labels, number)` for each step and writes down its time.
template <typename Step>
absl::Status TimeSteps(const Options& options, int rank, const Step& step) {
  const Samples samples(rank);
  const MachineClock clock;
  StepLog log(absl::StrCat(options.out, "-", rank));
  if (!log.is_open()) return absl::NotFoundError(options.out);
  for (int64_t i = 0; options.steps == 0 || i < options.steps; ++i) {
    const absl::Duration start = clock.Monotonic();
    COHORT_RETURN_IF_ERROR(
        step(samples.images[i % kBatches], samples.labels[i % kBatches], i));
    log.Add(start, clock.Monotonic() - start);
  }
  return absl::OkStatus();
}

template <typename Net>
absl::Status TrainBare(const Options& options, std::shared_ptr<Net> net) {
  const char* const rank = std::getenv("RANK");
  torch::optim::SGD optimizer(net->parameters(), kRate);
  return TimeSteps(
      options, rank == nullptr ? 0 : std::atoi(rank),
      [&](const torch::Tensor& images, const torch::Tensor& labels, int64_t) {
        return torch_adapter::CatchTorch([&] {
          optimizer.zero_grad();
          const torch::Tensor loss = torch::nn::functional::cross_entropy(
              net->forward(images), labels);
          loss.backward();
          optimizer.step();
          loss.template item<float>();
          return absl::OkStatus();
        });
      });
}

template <typename Net>
absl::Status TrainInGang(const Options& options, std::shared_ptr<Net> net) {
  COHORT_ASSIGN_OR_RETURN(trainer::WorkerSessionOptions place,
                          trainer::WorkerSessionFromEnvironment());
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<trainer::Session> session,
                          trainer::WorkerSession::Join(std::move(place)));
  COHORT_ASSIGN_OR_RETURN(const auto model,
                          torch_adapter::DistributedDataParallel<Net>::Create(
                              net, session->comm()));
  torch::optim::SGD optimizer(net->parameters(), kRate);
  const auto step = [&](const torch::Tensor& images,
                        const torch::Tensor& labels,
                        int64_t number) -> absl::Status {
    model->ZeroGradients();
    torch::Tensor loss;
    COHORT_RETURN_IF_ERROR(torch_adapter::CatchTorch([&] {
      loss =
          torch::nn::functional::cross_entropy(model->forward(images), labels);
      return absl::OkStatus();
    }));
    COHORT_RETURN_IF_ERROR(model->Backward(loss));
    double value = 0;
    COHORT_RETURN_IF_ERROR(torch_adapter::CatchTorch([&] {
      optimizer.step();
      value = loss.item<float>();
      return absl::OkStatus();
    }));
    if (!options.report) return absl::OkStatus();
    return session->Report(
        absl::StrFormat(R"({"step": %d, "loss": %.6g})", number, value));
  };
  COHORT_RETURN_IF_ERROR(TimeSteps(options, session->rank(), step));
  return session->Finish();
}

template <typename Net>
absl::Status Train(const Options& options, std::shared_ptr<Net> net) {
  return options.bare ? TrainBare(options, std::move(net))
                      : TrainInGang(options, std::move(net));
}

int Main(int argc, char** argv) {
  Options options;
  bool understood = argc >= 4 && absl::SimpleAtoi(argv[2], &options.steps);
  for (int i = 4; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--bare") {
      options.bare = true;
    } else if (flag == "--report") {
      options.report = true;
    } else {
      understood = false;
    }
  }
  if (!understood) {
    std::fprintf(stderr,
                 "usage: train-loop mlp|cnn STEPS OUT [--bare] [--report]\n");
    return 2;
  }
  options.model = argv[1];
  options.out = argv[3];
  torch_adapter::PrepareProcess();
  torch::manual_seed(1);
  const absl::Status done = options.model == "mlp"
                                ? Train(options, std::make_shared<Mlp>())
                                : Train(options, std::make_shared<Cnn>());
  if (done.ok()) return 0;
  std::fprintf(stderr, "train-loop: %s\n", done.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) { return cohort::bench::Main(argc, argv); }
