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
#include "trainer/torch/process.h"
#include "trainer/torch/state_dict.h"

namespace cohort::torch_adapter {
namespace {

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
  EXPECT_THAT(ViewOf({"h", torch::zeros({2}, torch::kHalf)}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("h is")));
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

}  // namespace
}  // namespace cohort::torch_adapter
