#include "trainer/torch/sync_batch_norm.h"

#include <vector>

#include "gtest/gtest.h"
#include "torch/nn/modules/batchnorm.h"
#include "torch/utils.h"

#include "trainer/local_comm.h"
#include "trainer/testing/thread_gang.h"

namespace cohort::train {
namespace {

constexpr int kWorld = 2;
constexpr int64_t kChannels = 3;

// Rank 0 has more of the batch than rank 1.
torch::Tensor PartOf(const torch::Tensor& joined, int rank) {
  return rank == 0 ? joined.slice(0, 0, 5) : joined.slice(0, 5, 8);
}

bool Near(const torch::Tensor& a, const torch::Tensor& b) {
  return torch::allclose(a, b, /*rtol=*/1e-4, /*atol=*/1e-5);
}

struct Rank {
  torch::Tensor out, gradient, weight_gradient, bias_gradient;
  torch::Tensor mean, variance, evaluated;
};

TEST(SyncBatchNormTest, IsBatchNormOverTheJoinedBatch) {
  torch::manual_seed(1);
  const torch::Tensor joined = torch::randn({8, kChannels, 4, 4}) * 3 + 2;
  const torch::Tensor wanted = torch::randn({8, kChannels, 4, 4});

  torch::nn::BatchNorm2d norm(kChannels);
  const torch::Tensor x = joined.clone().requires_grad_();
  const torch::Tensor y = norm(x);
  (y * wanted).sum().backward();
  norm->eval();
  const torch::Tensor evaluated = norm(joined).detach();

  std::vector<Rank> ranks(kWorld);
  trainer::RunThreadGang(kWorld, [&](trainer::Comm& comm) {
    Rank& rank = ranks[static_cast<size_t>(comm.rank())];
    SyncBatchNorm sync(comm, kChannels);
    const torch::Tensor part =
        PartOf(joined, comm.rank()).clone().requires_grad_();
    const torch::Tensor out = sync(part);
    (out * PartOf(wanted, comm.rank())).sum().backward();
    rank = {out.detach(),      part.grad(),        sync->weight.grad(),
            sync->bias.grad(), sync->running_mean, sync->running_var,
            torch::Tensor()};
    sync->eval();
    rank.evaluated = sync(PartOf(joined, comm.rank())).detach();
  });
  for (int r = 0; r < kWorld; ++r) {
    const Rank& rank = ranks[static_cast<size_t>(r)];
    EXPECT_TRUE(Near(rank.out, PartOf(y, r)));
    EXPECT_TRUE(Near(rank.gradient, PartOf(x.grad(), r)));
    EXPECT_TRUE(Near(rank.mean, norm->running_mean));
    EXPECT_TRUE(Near(rank.variance, norm->running_var));
    EXPECT_TRUE(Near(rank.evaluated, PartOf(evaluated, r)));
  }
  EXPECT_TRUE(Near(ranks[0].weight_gradient + ranks[1].weight_gradient,
                   norm->weight.grad()));
  EXPECT_TRUE(
      Near(ranks[0].bias_gradient + ranks[1].bias_gradient, norm->bias.grad()));
}

TEST(SyncBatchNormTest, AloneItIsBatchNorm) {
  torch::manual_seed(1);
  const torch::Tensor x = torch::randn({8, kChannels, 4, 4});
  trainer::LocalComm comm;
  SyncBatchNorm sync(comm, kChannels);
  torch::nn::BatchNorm2d norm(kChannels);
  EXPECT_TRUE(Near(sync(x), norm(x)));
  EXPECT_TRUE(Near(sync->running_var, norm->running_var));
}

}  // namespace
}  // namespace cohort::train
