#include "trainer/torch/distributed_data_parallel.h"

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/nn/functional/loss.h"
#include "torch/nn/module.h"
#include "torch/nn/modules/batchnorm.h"
#include "torch/nn/modules/conv.h"
#include "torch/nn/modules/linear.h"
#include "torch/optim/adam.h"
#include "torch/utils.h"

#include "common/testing/status_matchers.h"
#include "trainer/local_comm.h"
#include "trainer/loss_scaler.h"
#include "trainer/testing/thread_gang.h"
#include "trainer/torch/adam.h"
#include "trainer/torch/state_dict.h"

namespace cohort::torch_adapter {
namespace {

using trainer::Comm;
using trainer::LocalComm;
using trainer::RunThreadGang;

// Weights set by hand: ranks are threads, and torch's generator is shared.
struct Net : torch::nn::Module {
  explicit Net(double start) {
    first = register_module("first", torch::nn::Linear(4, 8));
    second = register_module("second", torch::nn::Linear(8, 3));
    unused = register_module("unused", torch::nn::Linear(2, 2));
    to(torch::kFloat64);
    const torch::NoGradGuard no_gradients;
    for (torch::Tensor& parameter : parameters()) {
      parameter.copy_(torch::arange(parameter.numel(), torch::kFloat64)
                          .reshape(parameter.sizes())
                          .sin() *
                      start);
    }
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return second->forward(torch::tanh(first->forward(x)));
  }
  torch::nn::Linear first{nullptr}, second{nullptr}, unused{nullptr};
};

torch::Tensor Inputs(int64_t begin, int64_t end) {
  return torch::arange(begin * 4, end * 4, torch::kFloat64)
      .reshape({end - begin, 4})
      .cos();
}
torch::Tensor Labels(int64_t begin, int64_t end) {
  return torch::arange(begin, end, torch::kInt64).remainder(3);
}
torch::Tensor LossOf(torch::Tensor logits, int64_t begin, int64_t end) {
  return torch::nn::functional::cross_entropy(logits, Labels(begin, end));
}

using Model = DistributedDataParallel<Net>;

// The gradients of the whole batch in one process, by plain LibTorch.
std::vector<torch::Tensor> Expected(int64_t begin, int64_t end) {
  Net net(0.5);
  LossOf(net.forward(Inputs(begin, end)), begin, end).backward();
  std::vector<torch::Tensor> gradients;
  for (const torch::Tensor& parameter : net.parameters()) {
    gradients.push_back(parameter.grad().defined() ? parameter.grad().clone()
                                                   : torch::Tensor());
  }
  return gradients;
}

void ExpectGradients(Net& net, const std::vector<torch::Tensor>& expected) {
  const std::vector<torch::Tensor> parameters = net.parameters();
  ASSERT_EQ(parameters.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    // What nobody uses has none, and optimizers leave it alone.
    ASSERT_EQ(parameters[i].grad().defined(), expected[i].defined()) << i;
    if (!expected[i].defined()) continue;
    EXPECT_TRUE(
        torch::allclose(parameters[i].grad(), expected[i], 1e-12, 1e-14))
        << "parameter " << i;
  }
}

// The vector of bits by which ranks agree on what was used.
TEST(DistributedDataParallelTest, WhatOneRankUsesAllRanksHave) {
  RunThreadGang(2, [&](Comm& comm) {
    auto net = std::make_shared<Net>(0.5);
    auto model = Model::Create(net, comm);
    COHORT_ASSERT_OK(model);
    const auto gradient = [&] { return net->unused->bias.grad(); };
    for (const bool is_used : {true, false, true}) {
      (*model)->ZeroGradients();
      torch::Tensor loss = (*model)->forward(Inputs(0, 4)).sum();
      if (is_used && comm.rank() == 1) {
        loss = loss +
               net->unused->forward(torch::ones({1, 2}, torch::kFloat64)).sum();
      }
      COHORT_ASSERT_OK((*model)->Backward(loss));
      ASSERT_EQ(gradient().defined(), is_used);
      if (is_used) {
        EXPECT_EQ(gradient()[0].item<double>(), 0.5);
      }
    }
  });
}

// DP-1, DP-2
TEST(DistributedDataParallelTest, AveragesDifferentSamplesIntoTheWholeBatch) {
  const std::vector<torch::Tensor> expected = Expected(0, 12);
  RunThreadGang(3, [&](Comm& comm) {
    // Other weights on the other ranks: Create must replace them.
    auto net = std::make_shared<Net>(comm.rank() == 0 ? 0.5 : 7.0);
    auto model = Model::Create(net, comm);
    COHORT_ASSERT_OK(model);
    const int64_t begin = comm.rank() * 4;
    for (int round = 0; round < 2; ++round) {
      (*model)->ZeroGradients();
      const torch::Tensor logits = (*model)->forward(Inputs(begin, begin + 4));
      COHORT_ASSERT_OK((*model)->Backward(LossOf(logits, begin, begin + 4)));
      ExpectGradients(*net, expected);
    }
  });
}

TEST(DistributedDataParallelTest, AddsUpLocallyUntilToldToAverage) {
  const std::vector<torch::Tensor> expected = Expected(0, 8);
  RunThreadGang(2, [&](Comm& comm) {
    auto net = std::make_shared<Net>(0.5);
    auto model = Model::Create(net, comm);
    COHORT_ASSERT_OK(model);
    (*model)->ZeroGradients();
    for (const int64_t part : {0, 1}) {
      const int64_t begin = comm.rank() * 4 + part * 2;
      const torch::Tensor loss =
          LossOf((*model)->forward(Inputs(begin, begin + 2)), begin,
                 begin + 2) /
          2;
      COHORT_ASSERT_OK(
          (*model)->Backward(loss, part == 0 ? Sync::kLater : Sync::kNow));
    }
    ExpectGradients(*net, expected);
  });
}

// A convolution in the layout that is fast on GPUs, and a mask.
struct Masked : torch::nn::Module {
  explicit Masked(bool is_rank_0) {
    convolution = register_module(
        "convolution",
        torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 4, 3).bias(false)));
    mask = register_buffer("mask",
                           torch::tensor({is_rank_0, true, false, is_rank_0}));
    bytes = register_buffer(
        "bytes", torch::full({3}, is_rank_0 ? 200 : 1, torch::kUInt8));
    const torch::NoGradGuard no_gradients;
    torch::Tensor& weight = convolution->weight;
    weight.copy_(
        torch::arange(weight.numel(), torch::kFloat32).view_as(weight).sin() *
        (is_rank_0 ? 0.1 : 7));
    weight.set_data(weight.to(torch::MemoryFormat::ChannelsLast));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return convolution->forward(x) * mask.view({1, 4, 1, 1});
  }
  torch::nn::Conv2d convolution{nullptr};
  torch::Tensor mask, bytes;
};

torch::Tensor Images(int64_t begin, int64_t end) {
  return torch::arange(begin * 50, end * 50, torch::kFloat32)
      .reshape({end - begin, 2, 5, 5})
      .cos();
}

TEST(DistributedDataParallelTest, TakesChannelsLastAndBoolBuffers) {
  // By plain LibTorch, of the whole batch.
  Masked whole(true);
  whole.forward(Images(0, 4)).square().mean().backward();
  const torch::Tensor expected = whole.convolution->weight.grad();
  torch::optim::Adam optimizer(whole.parameters(), 0.01);
  optimizer.step();

  RunThreadGang(2, [&](Comm& comm) {
    auto net = std::make_shared<Masked>(comm.rank() == 0);
    torch::Tensor& weight = net->convolution->weight;
    ASSERT_FALSE(weight.is_contiguous());
    auto model = DistributedDataParallel<Masked>::Create(net, comm);
    COHORT_ASSERT_OK(model);
    EXPECT_TRUE(torch::equal(net->mask, whole.mask));
    EXPECT_TRUE(torch::equal(net->bytes, whole.bytes));
    (*model)->ZeroGradients();
    const int64_t begin = comm.rank() * 2;
    COHORT_ASSERT_OK((*model)->Backward(
        (*model)->forward(Images(begin, begin + 2)).square().mean()));
    EXPECT_TRUE(torch::allclose(weight.grad(), expected, 1e-4, 1e-6));
    auto adam = Adam::Create(*net, {.lr = 0.01});
    COHORT_ASSERT_OK(adam);
    COHORT_ASSERT_OK((*adam)->Step());
    EXPECT_FALSE(weight.is_contiguous());
    EXPECT_TRUE(torch::allclose(weight, whole.convolution->weight, 1e-4, 1e-5));
  });
}

// DP-3
TEST(DistributedDataParallelTest, RanksStayBitEqualOverManySteps) {
  std::vector<torch::Tensor> weights(2);
  RunThreadGang(2, [&](Comm& comm) {
    auto net = std::make_shared<Net>(0.5 + comm.rank());
    auto model = Model::Create(net, comm);
    COHORT_ASSERT_OK(model);
    auto optimizer = Adam::Create(*net, {.lr = 0.01});
    COHORT_ASSERT_OK(optimizer);
    for (int64_t step = 0; step < 50; ++step) {
      const int64_t begin = (step * 2 + comm.rank()) * 4;
      (*model)->ZeroGradients();
      COHORT_ASSERT_OK((*model)->Backward(LossOf(
          (*model)->forward(Inputs(begin, begin + 4)), begin, begin + 4)));
      COHORT_ASSERT_OK((*optimizer)->Step());
    }
    weights[comm.rank()] = net->first->weight.detach().clone();
  });
  EXPECT_TRUE(torch::equal(weights[0], weights[1]));
}

TEST(DistributedDataParallelTest, TakesBackGradientsThatWereDropped) {
  const std::vector<torch::Tensor> expected = Expected(0, 4);
  LocalComm comm;
  auto net = std::make_shared<Net>(0.5);
  auto model = Model::Create(net, comm);
  COHORT_ASSERT_OK(model);
  (*model)->ZeroGradients();
  const void* home = net->first->weight.grad().data_ptr();
  for (torch::Tensor& parameter : net->parameters()) {
    parameter.mutable_grad() = torch::Tensor();  // optimizer.zero_grad()
  }
  COHORT_ASSERT_OK(
      (*model)->Backward(LossOf((*model)->forward(Inputs(0, 4)), 0, 4)));
  EXPECT_EQ(net->first->weight.grad().data_ptr(), home);
  ExpectGradients(*net, expected);
}

TEST(DistributedDataParallelTest, TurnsLibTorchsErrorIntoAStatus) {
  LocalComm comm;
  auto model = Model::Create(std::make_shared<Net>(0.5), comm);
  COHORT_ASSERT_OK(model);
  EXPECT_THAT(
      (*model)->Backward(torch::zeros({2})),
      StatusIs(absl::StatusCode::kInternal, ::testing::HasSubstr("LibTorch")));
}

// The sum of w * x, in float16 but for the sum.
struct Half : torch::nn::Module {
  Half() { w = register_parameter("w", torch::ones({4}, torch::kHalf)); }
  torch::Tensor forward(const torch::Tensor& x) {
    return (w * x.to(torch::kHalf)).to(torch::kFloat32).sum();
  }
  torch::Tensor w;
};

// LS-1: the step in which one rank's gradients overflow is left out by all.
TEST(DistributedDataParallelTest, ScalesTheLossInFloat16) {
  RunThreadGang(2, [&](Comm& comm) {
    auto net = std::make_shared<Half>();
    auto model = DistributedDataParallel<Half>::Create(net, comm);
    COHORT_ASSERT_OK(model);
    auto optimizer = Adam::Create(*net, {.lr = 0.01});
    COHORT_ASSERT_OK(optimizer);
    auto scaler = trainer::LossScaler::Create({.initial_scale = 1024});
    COHORT_ASSERT_OK(scaler);
    for (int step = 0; step < 4; ++step) {
      const double x = step == 0 && comm.rank() == 1 ? 60000 : comm.rank() + 1;
      (*model)->ZeroGradients();
      COHORT_ASSERT_OK((*model)->Backward(
          (*model)->forward(torch::full({4}, x)) * scaler->scale()));
      const auto is_finite = (*model)->AllFinite();
      EXPECT_THAT(is_finite, IsOkAndHolds(step > 0));
      if (is_finite.value_or(false)) {
        EXPECT_TRUE(
            torch::equal(net->w.grad(), torch::full({4}, 768.0, torch::kHalf)))
            << "512 times the mean of 1 and 2: " << net->w.grad();
        COHORT_ASSERT_OK((*optimizer)->Step(scaler->inverse_scale()));
      }
      COHORT_ASSERT_OK(scaler->Update(is_finite.value_or(false)));
    }
    EXPECT_EQ((*optimizer)->step(), 3);
    EXPECT_TRUE(torch::equal(net->w, torch::full({4}, 0.97f).to(torch::kHalf)))
        << net->w;
  });
}

struct Buffered : torch::nn::Module {
  Buffered() { norm = register_module("norm", torch::nn::BatchNorm1d(3)); }
  torch::Tensor forward(const torch::Tensor& x) { return norm->forward(x); }
  torch::nn::BatchNorm1d norm{nullptr};
};

TEST(DistributedDataParallelTest, CopiesBuffersToo) {
  RunThreadGang(2, [&](Comm& comm) {
    auto net = std::make_shared<Buffered>();
    net->norm->running_mean.fill_(comm.rank() + 1.0);
    net->norm->num_batches_tracked.fill_(comm.rank() + 5);
    COHORT_ASSERT_OK(DistributedDataParallel<Buffered>::Create(net, comm));
    EXPECT_EQ(net->norm->running_mean[0].item<double>(), 1.0);
    EXPECT_EQ(net->norm->num_batches_tracked.item<int64_t>(), 5);
  });
}

}  // namespace
}  // namespace cohort::torch_adapter
