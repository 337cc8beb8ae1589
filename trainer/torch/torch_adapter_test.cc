#include <ATen/Context.h>

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/nn/modules/batchnorm.h"
#include "torch/nn/modules/container/sequential.h"
#include "torch/nn/modules/conv.h"
#include "torch/nn/modules/linear.h"
#include "torch/optim/adam.h"
#include "torch/utils.h"

#include "common/testing/status_matchers.h"
#include "trainer/torch/adam.h"
#include "trainer/torch/device_memory.h"
#include "trainer/torch/process.h"
#include "trainer/torch/state_dict.h"

namespace cohort::torch_adapter {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using trainer::SafetensorsFile;
using trainer::TensorView;

SafetensorsFile FileOf(const std::vector<TensorView>& tensors) {
  std::vector<std::byte> bytes;
  const absl::Status status = trainer::WriteSafetensors(
      tensors, {}, [&](std::span<const std::byte> part) {
        bytes.insert(bytes.end(), part.begin(), part.end());
        return absl::OkStatus();
      });
  EXPECT_THAT(status, IsOk());
  return SafetensorsFile::Parse(std::move(bytes)).value();
}

torch::nn::Sequential MakeNet() {
  return torch::nn::Sequential(torch::nn::Linear(3, 2),
                               torch::nn::BatchNorm1d(2));
}

TEST(StateDictTest, NamesTensorsAsPythonDoes) {
  torch::nn::Sequential net = MakeNet();
  const auto state = StateDict(*net);
  COHORT_ASSERT_OK(state);
  std::vector<std::string> names;
  for (const TensorView& tensor : state->views()) names.push_back(tensor.name);
  EXPECT_THAT(names, ElementsAre("0.weight", "0.bias", "1.weight", "1.bias",
                                 "1.running_mean", "1.running_var",
                                 "1.num_batches_tracked"));
  EXPECT_THAT(state->views()[0].shape, ElementsAre(2, 3));
}

TEST(StateDictTest, LoadsWhatItSaved) {
  torch::nn::Sequential from = MakeNet();
  torch::nn::Sequential to = MakeNet();
  const SafetensorsFile file = FileOf(StateDict(*from)->views());
  COHORT_ASSERT_OK(LoadStateDict(file, *to));
  for (const NamedTensor& named : NamedTensors(*from)) {
    for (const NamedTensor& other : NamedTensors(*to)) {
      if (named.name == other.name) {
        EXPECT_TRUE(torch::equal(named.tensor, other.tensor)) << named.name;
      }
    }
  }
}

TEST(StateDictTest, RefusesAnotherModelsFileAndChangesNothing) {
  torch::nn::Sequential net = MakeNet();
  const torch::Tensor before = (*net)[0]->parameters()[0].detach().clone();
  const auto refused = [&](const std::vector<TensorView>& tensors,
                           const std::string& name) {
    EXPECT_THAT(LoadStateDict(FileOf(tensors), *net),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(name)));
  };
  torch::nn::Sequential other(torch::nn::Linear(4, 2),
                              torch::nn::BatchNorm1d(2));
  refused(StateDict(*other)->views(), "0.weight");
  std::vector<TensorView> missing = StateDict(*net)->views();
  missing.pop_back();
  refused(missing, "1.num_batches_tracked");
  const torch::Tensor extra = torch::zeros({2});
  torch::nn::Sequential same = MakeNet();
  std::vector<TensorView> more = StateDict(*same)->views();
  more.push_back(*ViewOf({"extra", extra}));
  refused(more, "extra");
  EXPECT_TRUE(torch::equal(before, (*net)[0]->parameters()[0]));
}

TEST(StateDictTest, RefusesTensorsThatAreNoPlainMemory) {
  EXPECT_THAT(ViewOf({"t", torch::zeros({2, 3}).t()}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(
      ViewOf({"t", torch::zeros({2}).to_sparse()}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("t must be")));
  EXPECT_THAT(ViewOf({"h", torch::zeros({2}, torch::kInt16)}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("h is")));
  EXPECT_THAT(BufferOf({"h", torch::zeros({2}, torch::kInt16)}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("h is")));
}

// What can be trained can be saved.
TEST(StateDictTest, HoldsSixteenBits) {
  for (const torch::ScalarType type : {torch::kHalf, torch::kBFloat16}) {
    torch::nn::Sequential from = MakeNet(), to = MakeNet();
    from->to(type);
    to->to(type);
    const auto state = StateDict(*from);
    COHORT_ASSERT_OK(state);
    COHORT_ASSERT_OK(LoadStateDict(FileOf(state->views()), *to));
    EXPECT_TRUE(torch::equal(from->parameters()[0], to->parameters()[0]));
    for (const NamedTensor& named : NamedTensors(*from)) {
      COHORT_EXPECT_OK(BufferOf(named));
      COHORT_EXPECT_OK(ViewOf(named));
    }
  }
}

// As Python reads them: row-major, and bool as bool.
TEST(StateDictTest, HoldsChannelsLastAndBool) {
  const auto make = [](int64_t begin) {
    auto module = std::make_shared<torch::nn::Module>();
    const torch::Tensor weight =
        torch::arange(begin, begin + 24, torch::kFloat32)
            .reshape({2, 3, 2, 2})
            .to(torch::MemoryFormat::ChannelsLast);
    module->register_parameter("weight", weight);
    module->register_buffer("mask", torch::tensor({begin == 0, true}));
    return module;
  };
  const auto from = make(0);
  const auto to = make(100);
  const auto state = StateDict(*from);
  COHORT_ASSERT_OK(state);
  const TensorView& weight = state->views()[0];
  EXPECT_EQ(reinterpret_cast<const float*>(weight.bytes.data())[1], 1);
  EXPECT_EQ(trainer::TensorTypeName(state->views()[1].type), "BOOL");
  COHORT_ASSERT_OK(LoadStateDict(FileOf(state->views()), *to));
  EXPECT_TRUE(torch::equal(from->parameters()[0], to->parameters()[0]));
  EXPECT_FALSE(to->parameters()[0].is_contiguous());
  EXPECT_TRUE(torch::equal(from->buffers()[0], to->buffers()[0]));
}

TEST(StateDictTest, NamesWhatCannotBeCopiedToTheHost) {
  HostTensors tensors;
  EXPECT_THAT(tensors.Add({"w", torch::zeros({2}, torch::kMeta)}),
              StatusIs(absl::StatusCode::kInternal,
                       AllOf(HasSubstr("w from meta"), HasSubstr("LibTorch"))));
}

torch::Tensor LossOf(torch::nn::Sequential& net, int step) {
  const torch::Tensor x =
      torch::arange(12, torch::kFloat32).reshape({4, 3}).add(step).sin();
  return net->forward(x).pow(2).mul(0.7).sum() +
         (*net)[0]->parameters()[1].sum();
}

TEST(AdamTest, FollowsLibTorchsAdam) {
  torch::nn::Sequential ours{torch::nn::Linear(3, 2)};
  torch::nn::Sequential theirs{torch::nn::Linear(3, 2)};
  COHORT_ASSERT_OK(LoadStateDict(FileOf(StateDict(*ours)->views()), *theirs));
  auto adam = Adam::Create(*ours, {.lr = 0.01});
  COHORT_ASSERT_OK(adam);
  torch::optim::Adam reference(theirs->parameters(),
                               torch::optim::AdamOptions(0.01));
  for (int step = 0; step < 100; ++step) {
    ours->zero_grad();
    LossOf(ours, step).backward();
    COHORT_ASSERT_OK((*adam)->Step());
    reference.zero_grad();
    LossOf(theirs, step).backward();
    reference.step();
  }
  EXPECT_TRUE(torch::allclose(ours->parameters()[0], theirs->parameters()[0],
                              1e-5, 1e-6));
  EXPECT_TRUE(torch::allclose(ours->parameters()[1], theirs->parameters()[1],
                              1e-5, 1e-6));
}

TEST(AdamTest, GoesOnBitByBitFromItsState) {
  torch::nn::Sequential whole{torch::nn::Linear(3, 2)};
  auto adam = Adam::Create(*whole, {.lr = 0.01});
  COHORT_ASSERT_OK(adam);
  const auto run = [](torch::nn::Sequential& net, Adam& with, int begin,
                      int end) {
    for (int step = begin; step < end; ++step) {
      net->zero_grad();
      LossOf(net, step).backward();
      COHORT_ASSERT_OK(with.Step());
    }
  };
  run(whole, **adam, 0, 10);
  const SafetensorsFile weights = FileOf(StateDict(*whole)->views());
  const SafetensorsFile state = FileOf((*adam)->State()->views());
  run(whole, **adam, 10, 20);

  torch::nn::Sequential resumed{torch::nn::Linear(3, 2)};
  auto again = Adam::Create(*resumed, {.lr = 0.01});
  COHORT_ASSERT_OK(LoadStateDict(weights, *resumed));
  COHORT_ASSERT_OK((*again)->Load(state));
  EXPECT_EQ((*again)->step(), 10);
  run(resumed, **again, 10, 20);
  EXPECT_TRUE(torch::equal(whole->parameters()[0], resumed->parameters()[0]));
  EXPECT_TRUE(torch::equal(whole->parameters()[1], resumed->parameters()[1]));
}

TEST(AdamTest, ChangesNothingWhereAGradientCannotBeRead) {
  torch::nn::Sequential net{torch::nn::Linear(3, 2)};
  auto adam = Adam::Create(*net, {.lr = 0.01});
  COHORT_ASSERT_OK(adam);
  LossOf(net, 0).backward();
  const torch::Tensor before = net->parameters()[0].detach().clone();
  const torch::Tensor gradient = net->parameters()[1].grad();
  net->parameters()[1].mutable_grad() = torch::zeros({3});
  EXPECT_THAT((*adam)->Step(), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("gradient of 0.bias")));
  EXPECT_EQ((*adam)->step(), 0);
  EXPECT_TRUE(torch::equal(net->parameters()[0], before));
  net->parameters()[1].mutable_grad() = gradient;
  COHORT_ASSERT_OK((*adam)->Step());
  EXPECT_EQ((*adam)->step(), 1);
  EXPECT_FALSE(torch::equal(net->parameters()[0], before));
}

// LibTorch throws there, as it does where memory is short.
TEST(AdamTest, NamesTheParameterWhoseStateItCannotHold) {
  std::vector<float> memory(2);
  torch::nn::Module net;
  net.register_parameter(
      "w", TensorAt(reinterpret_cast<std::byte*>(memory.data()), {2},
                    torch::kFloat32,
                    torch::Device(c10::DeviceType::PrivateUse1, 0)));
  EXPECT_THAT(Adam::Create(net, {}),
              StatusIs(absl::StatusCode::kInternal,
                       AllOf(HasSubstr("Adam's state of w on privateuse"),
                             HasSubstr("LibTorch: "))));
}

struct Weights : torch::nn::Module {
  explicit Weights(torch::ScalarType type) {
    w = register_parameter("w", torch::ones({4}, type));
  }
  torch::Tensor w;
};

TEST(AdamTest, TakesGradientsOfAScaledLoss) {
  for (const torch::ScalarType type :
       {torch::kHalf, torch::kBFloat16, torch::kFloat32, torch::kFloat64}) {
    Weights net(type);
    auto adam = Adam::Create(net, {});
    COHORT_ASSERT_OK(adam);
    net.w.mutable_grad() = torch::full({4}, 3.0 * 1024, type);
    COHORT_ASSERT_OK((*adam)->Step(1.0f / 1024));
    EXPECT_TRUE(torch::equal(net.w.grad(), torch::full({4}, 3072.0, type)));
    Weights exp_avg(type == torch::kFloat64 ? type : torch::kFloat32);
    const SafetensorsFile state = FileOf((*adam)->State()->views());
    COHORT_ASSERT_OK(CopyInto(*state.Find("exp_avg.w"), {"w", exp_avg.w}));
    EXPECT_TRUE(torch::allclose(exp_avg.w, torch::full_like(exp_avg.w, 0.3),
                                1e-6, 1e-7))
        << type;
  }
}

TEST(AdamTest, AddsUpWhatSixteenBitsWouldLose) {
  for (const torch::ScalarType type : {torch::kHalf, torch::kBFloat16}) {
    const auto run = [&](Weights& net, Adam& adam, int steps) {
      for (int step = 0; step < steps; ++step) {
        net.w.mutable_grad() = torch::full({4}, 0.5, type);
        COHORT_ASSERT_OK(adam.Step());
      }
    };
    Weights net(type);
    auto adam = Adam::Create(net, {.lr = 1e-4});
    COHORT_ASSERT_OK(adam);
    run(net, **adam, 50);
    const SafetensorsFile weights = FileOf(StateDict(net)->views());
    const SafetensorsFile state = FileOf((*adam)->State()->views());
    run(net, **adam, 50);
    EXPECT_TRUE(torch::equal(net.w, torch::full({4}, 0.99f).to(type))) << net.w;

    Weights resumed(type);
    auto again = Adam::Create(resumed, {.lr = 1e-4});
    COHORT_ASSERT_OK(again);
    COHORT_ASSERT_OK(LoadStateDict(weights, resumed));
    COHORT_ASSERT_OK((*again)->Load(state));
    run(resumed, **again, 50);
    const auto bits = [](Adam& of) {
      const SafetensorsFile file = FileOf(of.State()->views());
      const auto bytes = file.Find("master.w")->bytes;
      return std::vector<std::byte>(bytes.begin(), bytes.end());
    };
    EXPECT_EQ(bits(**adam), bits(**again));
    EXPECT_TRUE(torch::equal(net.w, resumed.w));
  }
}

TEST(AdamTest, NamesStateThatDoesNotFit) {
  torch::nn::Sequential net{torch::nn::Linear(3, 2)};
  torch::nn::Sequential other{torch::nn::Linear(3, 4)};
  auto adam = Adam::Create(*net, {});
  auto others = Adam::Create(*other, {});
  EXPECT_THAT(
      (*adam)->Load(FileOf((*others)->State()->views())),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("0.weight")));
}

TEST(ProcessTest, ComputesWithAFastBlas) {
  const ComputeFacts facts = PrepareProcess();
  EXPECT_TRUE(facts.fast_blas) << "LibTorch multiplies with " << facts.blas
                               << "; install libopenblas0-pthread";
  EXPECT_GE(facts.threads, 1);
}

TEST(ProcessTest, AsksForDeterminismOnCpusAlone) {
  PrepareProcess();
  EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
  PrepareForGpu();
  EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
}

}  // namespace
}  // namespace cohort::torch_adapter
